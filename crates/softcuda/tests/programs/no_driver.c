/* A library by the driver's name that has nothing in it. */
int nothing;
