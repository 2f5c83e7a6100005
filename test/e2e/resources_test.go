package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// resources are what the daemon holds.
type resources struct{ goroutines, descriptors int }

// resources reads the daemon's metrics.
func (w *world) resources() (resources, error) {
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", w.http), nil)
	if err != nil {
		return resources{}, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return resources{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	var r resources
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		for metric, to := range map[string]*int{"go_goroutines": &r.goroutines, "process_open_fds": &r.descriptors} {
			if name == metric {
				if *to, err = strconv.Atoi(value); err != nil {
					return r, err
				}
			}
		}
	}
	if r.goroutines == 0 || r.descriptors == 0 {
		return r, fmt.Errorf("the metrics lack goroutines or descriptors: %+v", r)
	}
	return r, nil
}

// stopAll stops every consumer and waits until all are STOPPED.
func (w *world) stopAll() {
	w.t.Helper()
	if _, err := w.api.Stop(w.ctx, &pb.StopRequest{Target: &pb.Target{All: true}}); err != nil {
		w.t.Fatalf("stop: %v", err)
	}
	for _, n := range w.names {
		w.await(n, pb.State_STATE_STOPPED, 15*time.Second)
	}
}

// baseline is what the daemon holds when all consumers have run and are STOPPED;
// they run again afterwards.
func (w *world) baseline() resources {
	w.t.Helper()
	w.stopAll()
	var r resources
	w.eventually("the daemon has come to rest", 10*time.Second, func() bool {
		last := r
		var err error
		r, err = w.resources()
		return err == nil && r == last
	})
	w.resumeAll()
	return r
}

// backAt stops all: goroutines and descriptors are back at the baseline within
// five seconds. The connections that the handlers keep to the ledger are theirs.
func (w *world) backAt(base resources) {
	w.t.Helper()
	w.stopAll()
	w.ledger.dropIdle()
	var r resources
	w.eventually(fmt.Sprintf("goroutines and descriptors are back at %+v", base), 5*time.Second, func() bool {
		var err error
		r, err = w.resources()
		return err == nil && r.goroutines <= base.goroutines && r.descriptors <= base.descriptors
	})
	w.t.Logf("goroutines %d, before %d; descriptors %d, before %d", r.goroutines, base.goroutines, r.descriptors, base.descriptors)
}

// nothingLeft: what was acknowledged is so on the broker too. First what nobody
// confirmed, but came all the same, is handled.
func (w *world) nothingLeft() {
	w.t.Helper()
	for _, n := range w.names {
		w.awaitLeft(n)
		w.eventually(n+" has nothing in flight", 10*time.Second, func() bool { return w.get(n).GetStatus().GetInFlight() == 0 })
	}
	w.stopAll()
	for _, n := range w.names {
		w.awaitLeft(n)
	}
}

func (w *world) awaitLeft(name string) {
	w.t.Helper()
	last := -1
	w.eventually("nothing is left of "+name, 20*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		defer cancel()
		n, err := w.left(ctx, name)
		if n != last || err != nil {
			w.t.Logf("%d left of %s (%v)", n, name, err)
		}
		last = n
		return err == nil && n == 0
	})
}
