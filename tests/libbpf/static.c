// SPDX-License-Identifier: MIT OR Apache-2.0
// Linked statically with libc: no library can be put into it.
int main(void)
{
	return 0;
}
