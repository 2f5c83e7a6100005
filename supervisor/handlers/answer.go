package handlers

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-111f5b8e/supervisord/supervisor"
)

const (
	// maxAnswer bytes of an answer are read; a longer one costs its connection.
	maxAnswer = 64 << 10
	// maxExcerpt bytes of it go into the error.
	maxExcerpt = 256
	// maxRetryAfter caps what an endpoint may ask for.
	maxRetryAfter = time.Hour
)

type action uint8

const (
	ack action = iota
	retryLater
	deadLetter
)

// verdict is an outcome that can be looked at.
type verdict struct {
	action action
	// after, with retryLater: not before; 0: as the spec says.
	after time.Duration
	err   error
}

func retry(err error) verdict { return verdict{action: retryLater, err: err} }

func (v verdict) outcome() supervisor.Outcome {
	switch v.action {
	case retryLater:
		if v.after > 0 {
			return supervisor.RetryAfter(v.err, v.after)
		}
		return supervisor.Retry(v.err)
	case deadLetter:
		return supervisor.DeadLetter(v.err)
	case ack:
	}
	return supervisor.Ack()
}

// statusVerdict reads an answer's status that is not 2xx.
func statusVerdict(status int, h http.Header) verdict {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return verdict{action: retryLater, after: retryAfter(h, time.Now())}
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return verdict{action: retryLater}
	case status >= 400 && status < 500:
		return verdict{action: deadLetter}
	default:
		return verdict{action: retryLater}
	}
}

// retryAfter reads Retry-After, in seconds or as a date, between 0 and
// maxRetryAfter; 0 when there is none or it cannot be read. A date is measured
// by the answer's own Date where it has one, so that clocks may differ.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// excerpt is the beginning of a text, as valid UTF-8.
func excerpt(s string) string {
	cut := len(s) > maxExcerpt
	if cut {
		s = s[:maxExcerpt]
	}
	s = strings.ToValidUTF8(s, "")
	if cut {
		s += "..."
	}
	return s
}
