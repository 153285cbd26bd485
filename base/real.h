/* Functions of real numbers whose bits are the same on every machine, which those of the C library
 * are not: its versions and its instruction sets differ in the last place. Each computes with sums
 * of two doubles, about a hundred bits, by additions, multiplications and divisions alone in a
 * fixed order, and rounds once: the result is the double nearest to the exact one, but for
 * arguments whose result lies within 2^-20 of a last place from the middle of two doubles, where it
 * may be the other of the two. Results below 2^-1022 are 0, whether or not denormals are zero
 * (denormals.h).
 *
 * NaN makes NaN; the limits at infinity, and the poles, are the C library's. No errno, no
 * exceptions. Any thread.
 *
 * Those that make floats are as fast as the C library's, which they ask first: where its last
 * places could decide the float, they compute as the others do. */
#ifndef BASE_REAL_H
#define BASE_REAL_H

double real_exp(double x);
/* x below 2^-1022 counts as 0: -infinity; below 0: NaN. */
double real_log(double x);
/* a^b. A negative a has a result for whole b alone, else NaN. */
double real_pow(double a, double b);
/* Radians. Beyond 2^51, where neighbouring doubles are half a radian or more apart, any angle is
 * taken as 0. */
double real_sin(double x);
double real_cos(double x);

/* The part of a normal distribution that lies below x, within 2^-50. */
double real_normal_below(double x);

/* e^x; factor times the cosine and the sine of x. */
float real_exp_float(double x);
float real_cos_float(double factor, double x);
float real_sin_float(double factor, double x);

#endif
