// Command bench measures what a supervised consumer costs: against a raw
// client loop doing the same work, and per idle consumer.
//
// Rates are compared in slices of a quarter of a second, one side after the
// other and in the opposite order each repetition, so that what else the
// machine does hits both; the answer is the ratio of the medians. Every
// comparison first measures the raw side against a second one of its kind, and
// is void when these two differ by more than 3 %.
//
// What does not depend on the machine (allocations, bytes, goroutines) is also
// held by the ordinary tests of this package; rates never are.
package main
