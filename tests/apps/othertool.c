// Another tool in the injection slot: it is there and does nothing.
int InitializeInjection(void) { return 1; }
