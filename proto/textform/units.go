package textform

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// sizeUnits from the largest; the binary ones are written, all are read.
var sizeUnits = []struct { //nolint:gochecknoglobals // a table
	name  string
	bytes int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
}

const binaryUnits = 4

var sizeForm = regexp.MustCompile(`^(0|[1-9][0-9]*)([A-Za-z]*)$`)

// ParseSize reads a size in bytes: a whole number, alone or with one of B, kB,
// MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024).
func ParseSize(s string) (int64, error) {
	if strings.HasPrefix(s, "-") {
		return 0, fmt.Errorf("%q is negative: a size is 0 or more", clip(s))
	}
	parts := sizeForm.FindStringSubmatch(s)
	if parts == nil {
		return 0, fmt.Errorf(`%q is no size: write a whole number of bytes, or one with its unit, like "64MiB"`, clip(s))
	}
	factor := int64(1)
	if parts[2] != "" {
		if factor = sizeUnit(parts[2]); factor == 0 {
			return 0, fmt.Errorf("%q is no size: did you mean %s?", clip(s), clip(parts[1])+unitMeant(parts[2]))
		}
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is too large: at most %s", clip(s), ExactSize(math.MaxInt64))
	}
	return n * factor, nil
}

func sizeUnit(name string) int64 {
	for _, u := range sizeUnits {
		if u.name == name {
			return u.bytes
		}
	}
	return 0
}

// unitMeant guesses from the first letter; a bare "M" or "Mi" is taken as binary.
func unitMeant(name string) string {
	for _, u := range sizeUnits {
		if strings.EqualFold(u.name, name) {
			return u.name
		}
	}
	for _, u := range sizeUnits[:binaryUnits] {
		if strings.EqualFold(u.name[:1], name[:1]) {
			return u.name
		}
	}
	return "MiB"
}

// ExactSize is the shortest form that ParseSize reads as the same number.
func ExactSize(n int64) string {
	for _, u := range sizeUnits[:binaryUnits] {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// FormatSize is a size for tables, rounded down to one decimal: "512B",
// "1.5KiB", "64MiB".
func FormatSize(n int64) string {
	for _, u := range sizeUnits[:binaryUnits] {
		if n >= u.bytes {
			tenths := n / u.bytes * 10
			tenths += n % u.bytes * 10 / u.bytes
			if tenths%10 == 0 || tenths >= 1000 {
				return strconv.FormatInt(tenths/10, 10) + u.name
			}
			return fmt.Sprintf("%d.%d%s", tenths/10, tenths%10, u.name)
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// ExactDuration is the form of Go without its empty tail: "2h" and not "2h0m0s".
func ExactDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// FormatDuration is a duration for tables, rounded down to what matters:
// "350ms", "4s", "1m48s", "11m", "2h05m", "3d04h".
func FormatDuration(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -max(d, -math.MaxInt64)
	}
	const day = 24 * time.Hour
	unit := func(u, of time.Duration) int64 { return int64(d % of / u) }
	switch {
	case d < time.Second:
		return fmt.Sprintf("%s%dms", sign, d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%s%ds", sign, int64(d/time.Second))
	case d < 10*time.Minute && d%time.Minute >= time.Second:
		return fmt.Sprintf("%s%dm%02ds", sign, int64(d/time.Minute), unit(time.Second, time.Minute))
	case d < time.Hour:
		return fmt.Sprintf("%s%dm", sign, int64(d/time.Minute))
	case d < day:
		return fmt.Sprintf("%s%dh%02dm", sign, int64(d/time.Hour), unit(time.Minute, time.Hour))
	}
	return fmt.Sprintf("%s%dd%02dh", sign, int64(d/day), unit(time.Hour, day))
}
