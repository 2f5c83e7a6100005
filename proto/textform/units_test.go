package textform_test

import (
	"math"
	"testing"
	"time"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "512B": 512, "64MiB": 64 << 20, "1KiB": 1024, "3GiB": 3 << 30, "2TiB": 2 << 40,
		"1kB": 1000, "5MB": 5e6, "7GB": 7e9, "1TB": 1e12, "9223372036854775807": math.MaxInt64, "8388607TiB": 8388607 << 40,
	} {
		if got, err := textform.ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "MiB", "-1", "+1", "01", "1.5GiB", "1 MiB", "1mib", "1KB", "0x1", "1_000", "8388608TiB", "9223372036854775808", "1e3", "1MiBs", "１"} {
		if got, err := textform.ParseSize(text); err == nil {
			t.Errorf("%q is accepted as %d", text, got)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 1 << 20: "1MiB", 1<<20 - 1: "1023KiB",
		64 << 20: "64MiB", 150<<20 + 1<<19: "150MiB", 99<<20 + 1<<19: "99.5MiB", math.MaxInt64: "8388607TiB", -5: "-5B",
	} {
		if got := textform.FormatSize(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 350 * time.Millisecond: "350ms", 999999 * time.Microsecond: "999ms", 4*time.Second + 900*time.Millisecond: "4s",
		59 * time.Second: "59s", time.Minute: "1m", 108 * time.Second: "1m48s", 605 * time.Second: "10m", 11 * time.Minute: "11m",
		time.Hour: "1h00m", 125 * time.Minute: "2h05m", 26 * time.Hour: "1d02h", -4 * time.Second: "-4s",
		math.MinInt64: "-106751d23h",
	} {
		if got := textform.FormatDuration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestShortEnum(t *testing.T) {
	for got, want := range map[string]string{
		textform.ShortEnum(supervisorv1.State_STATE_BACKOFF):                          "BACKOFF",
		textform.ShortEnum(supervisorv1.NatsManage_NATS_MANAGE_CREATE_IF_MISSING):     "CREATE_IF_MISSING",
		textform.ShortEnum(supervisorv1.State_STATE_UNSPECIFIED):                      "UNSPECIFIED",
		textform.ShortEnum(supervisorv1.State(99)):                                    "99",
		textform.ShortEnum(supervisorv1.ConditionType_CONDITION_TYPE_HANDLERS_LEAKED): "HANDLERS_LEAKED",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
