package spec_test

import (
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

func TestSelector(t *testing.T) {
	labels := map[string]string{"team": "payments", "eu": "", "tier": "gold"}
	for selector, want := range map[string]bool{
		"": true, "  ": true, "team=payments": true, "team=other": false, "missing=x": false, "eu=": true, "team=": false,
		"team!=other": true, "team!=payments": false, "missing!=x": true, "eu!=": false, "missing!=": true,
		"eu": true, "missing": false, "!eu": false, "!legacy": true,
		"team=payments,tier!=free,eu,!legacy": true, " team=payments , eu ": true, "team=payments,tier=free": false, "team=payments,team=other": false,
	} {
		s, err := spec.ParseSelector(selector)
		if err != nil {
			t.Errorf("%q: %v", selector, err)
			continue
		}
		if got := s.Matches(labels); got != want {
			t.Errorf("%q matches: %t, want %t", selector, got, want)
		}
	}
	for _, selector := range []string{
		",", "a,", ",a", "a,,b", "=", "=v", "!", "!=v", "a==b", "a=b=c", "!a=b", "!!a", "a b", "a=b c", "a=(b)", "a in (b)", "a>1",
		strings.Repeat("k", 64), "a=" + strings.Repeat("v", 64), strings.Repeat("a,", 512) + "a", "a\x00",
	} {
		if s, err := spec.ParseSelector(selector); err == nil {
			t.Errorf("%q is accepted as %q", selector, s)
		}
	}
}

func FuzzSelector(f *testing.F) {
	f.Add("team=payments,tier!=free,eu,!legacy")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := spec.ParseSelector(text)
		if err != nil {
			return
		}
		again, err := spec.ParseSelector(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q is written as %q and read back as %q, %v", text, s, again, err)
		}
	})
}
