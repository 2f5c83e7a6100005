package main

import (
	"bytes"
	"strings"
	"testing"
)

// events are lines as go test writes them.
func summed(t *testing.T, events string) (printed string, err error) {
	t.Helper()
	var out bytes.Buffer
	s := newSummary(&out)
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	err = s.close()
	return out.String(), err
}

const passing = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`

func TestPassingIsShortAndCounted(t *testing.T) {
	printed, err := summed(t, passing+`{"Action":"output","Package":"p","Test":"TestC","Output":"    x.go:1: brokertest: nats: 40 behaviours ran\n"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    x.go:2: tally: 7 runs\n"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q"}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TestC: nats: 40 behaviours ran\n", "TestC: 7 runs\n", "ok  \tp\t0.1s\n", "?   \tq\t[no test files]\n", "     2  p\n", "2 tests ran, subtests included: 0 failed, 0 skipped"} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is missing in:\n%s", want, printed)
		}
	}
	if strings.Contains(printed, "chatter") || strings.Contains(printed, "PASS") {
		t.Errorf("what a passing test says is printed:\n%s", printed)
	}
}

func TestWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, events, err, printed string
	}{
		{"nothing ran", `{"Action":"skip","Package":"q"}` + "\n", "no test ran", "0 tests ran"},
		{"skipped", passing + `{"Action":"output","Package":"p","Test":"TestB","Output":"no broker here\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
`, "p: TestB", "no broker here"},
		{"failed", passing + `{"Action":"output","Package":"p","Test":"TestB","Output":"got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
`, "1 tests failed", "got 1, want 2"},
		{"the process died", passing + `{"Action":"output","Package":"r","Test":"TestC","Output":"panic: oh\n"}
{"Action":"output","Package":"r","Output":"FAIL\tr\t0.1s\n"}
{"Action":"fail","Package":"r","Test":"TestC"}
{"Action":"fail","Package":"r"}
`, "1 tests failed", "panic: oh\nFAIL\tr\t0.1s\n"},
		{"does not build", passing + `{"Action":"build-output","ImportPath":"r","Output":"r.go:1: undefined\n"}
`, "", "r.go:1: undefined"},
		{"not JSON", passing + "go: no such tool\n", "", "go: no such tool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			printed, err := summed(t, c.events)
			if got := errorText(err); c.err == "" && got != "" || !strings.Contains(got, c.err) {
				t.Errorf("the verdict is %q, want %q in it", got, c.err)
			}
			if !strings.Contains(printed, c.printed) {
				t.Errorf("%q is missing in:\n%s", c.printed, printed)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestRunFails: a run of go test that cannot even begin is a failure.
func TestRunFails(t *testing.T) {
	var out, errs bytes.Buffer
	if err := run(t.Context(), []string{"./there/is/no/such/package"}, &out, &errs); err == nil {
		t.Errorf("no error; printed %q and %q", out.String(), errs.String())
	}
}
