//go:build !linux

package store_test

// childOnSmallDisk is run by no test here.
func childOnSmallDisk(string) int { return 1 }
