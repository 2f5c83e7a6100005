package store_test

// childVar names the function that a process started by a test runs instead
// of the tests.
const childVar = "STORE_TEST_CHILD"

var children = map[string]func(arg string) int{}
