package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// Goals per idle consumer.
const (
	ownBytesGoal      = 16 << 10
	ownGoroutinesGoal = 4
)

// footprint is what one process holds at rest, or the difference of two.
type footprint struct {
	// Heap is live after collection; Stacks are those of goroutines.
	Heap       int64 `json:"heap"`
	Stacks     int64 `json:"stacks"`
	RSS        int64 `json:"rss"`
	Goroutines int   `json:"goroutines"`
	// Start and Stop are how long all consumers took.
	Start time.Duration `json:"start"`
	Stop  time.Duration `json:"stop"`
}

// rest reads the footprint after collecting what is no longer used. Some times:
// each collection leaves what finalizers held, and halves stacks at most.
func rest() footprint {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{Heap: int64(m.HeapAlloc), Stacks: int64(m.StackInuse), RSS: rss(), Goroutines: runtime.NumGoroutine()}
}

func (f footprint) minus(o footprint) footprint {
	f.Heap -= o.Heap
	f.Stacks -= o.Stacks
	f.RSS -= o.RSS
	f.Goroutines -= o.Goroutines
	return f
}

// live is heap and stacks.
func (f footprint) live() int64 { return f.Heap + f.Stacks }

// idleSetup is a driver with empty sources. The consumer of the first is there
// before it is measured: what all share is not counted.
type idleSetup struct {
	driver brokers.Driver
	conn   *pb.Connection
	specs  []*pb.ConsumerSpec
	// heap, if not empty, is where to write a profile of the hosted consumers.
	heap string
}

// profile writes what is live now.
func (s idleSetup) profile() error {
	if s.heap == "" {
		return nil
	}
	f, err := os.Create(s.heap)
	if err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}

// hosted measures consumers of a supervisor.
func (s idleSetup) hosted(ctx context.Context) (footprint, error) {
	h, err := newHost(s.driver, s.conn, map[string]supervisor.Handler{handlerName: noop()})
	if err != nil {
		return footprint{}, err
	}
	started := 0
	out, err := s.measure(func(specs []*pb.ConsumerSpec) error {
		if err := h.apply(ctx, specs...); err != nil {
			return err
		}
		started += len(specs)
		return h.await(ctx, pb.State_STATE_RUNNING, started)
	})
	err = errors.Join(err, s.profile())
	began := time.Now()
	err = errors.Join(err, h.close(ctx))
	out.Stop = time.Since(began)
	return out, err
}

// bare measures the driver alone: subscriptions, each with a goroutine that
// waits in Receive.
func (s idleSetup) bare(ctx context.Context) (footprint, error) {
	conn, err := connect(ctx, s.driver, s.conn)
	if err != nil {
		return footprint{}, err
	}
	receiving, cancel := context.WithCancelCause(ctx)
	var loops sync.WaitGroup
	subs := make([]brokers.Subscription, 0, len(s.specs))
	out, err := s.measure(func(specs []*pb.ConsumerSpec) error {
		for _, spec := range specs {
			sub, err := subscribe(ctx, s.driver, conn, spec)
			if err != nil {
				return err
			}
			subs = append(subs, sub)
			loops.Go(func() {
				for receiving.Err() == nil {
					if _, e := sub.Receive(receiving, brokers.Credit{Messages: 100, Bytes: 64 << 20}); e != nil {
						return
					}
				}
			})
		}
		return nil
	})
	began := time.Now()
	cancel(errSeen)
	loops.Wait()
	err = errors.Join(err, closeAll(ctx, conn, subs...))
	out.Stop = time.Since(began)
	return out, err
}

// measure starts the first consumer, then the others, and returns what these
// hold.
func (s idleSetup) measure(start func([]*pb.ConsumerSpec) error) (footprint, error) {
	if err := start(s.specs[:1]); err != nil {
		return footprint{}, err
	}
	before := rest()
	began := time.Now()
	err := start(s.specs[1:])
	took := time.Since(began)
	out := rest().minus(before)
	out.Start = took
	return out, err
}

// runIdlePart measures one footprint in a process that does nothing else.
func runIdlePart(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	n := fs.Int("n", 0, "consumers")
	driver := fs.String("driver", "", "of the consumers")
	server := fs.String("server", "", "where the broker is")
	bare := fs.Bool("bare", false, "the driver alone")
	profile := fs.String("heap", "", "write what is live at rest into this file")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *profile != "" {
		runtime.MemProfileRate = 512
	}
	kind, err := idleKindOf(*driver)
	if err != nil {
		return err
	}
	setup, err := kind.setup(*n+1, *server)
	if err != nil {
		return err
	}
	setup.heap = *profile
	part := setup.hosted
	if *bare {
		part = setup.bare
	}
	out, err := part(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(out)
}

// part measures one footprint in a process of its own, on a fresh server.
func (k idleKind) part(ctx context.Context, n int, bare bool, heap string) (out footprint, err error) {
	server, end, err := k.serve(ctx, n)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, end()) }()
	self, err := os.Executable()
	if err != nil {
		return out, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "idle-part", "-driver", k.name, "-n", strconv.Itoa(n), "-server", server,
		"-bare="+strconv.FormatBool(bare), "-heap", heap)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("a process with %d consumers: %w", n, err)
	}
	return out, json.Unmarshal(b, &out)
}

// runIdle measures what an idle consumer holds.
func runIdle(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	n := fs.Int("n", 0, "consumers in one process; default: what the driver's goal is for")
	driver := fs.String("driver", "memory", idleNames())
	heap := fs.String("heap", "", "write a pprof profile of what the consumers hold into this file")
	results := fs.String("results", "", "also put the table into this file (bench/RESULTS.md)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	k, err := idleKindOf(*driver)
	if err != nil {
		return err
	}
	if *n == 0 {
		*n = k.n
	}
	lines := machine(k.modules...)
	hosted, err := k.part(ctx, *n, false, *heap)
	if err != nil {
		return err
	}
	bare, err := k.part(ctx, *n, true, "")
	if err != nil {
		return err
	}
	r := k.report(*n, hosted, bare)
	r.lines = lines
	return r.publish(w, *results)
}

func (k idleKind) report(n int, hosted, bare footprint) *report {
	r := &report{
		title: "Idle consumers, " + k.name + " driver",
		head: []string{fmt.Sprintf("%d consumers", n), "live bytes each", "of them heap", "of them stacks", "goroutines each",
			"RSS each", "start all", "stop all"},
	}
	row := func(name string, f footprint, times bool) {
		each := func(v int64) string { return fmt.Sprintf("%.1f KiB", float64(v)/float64(n)/1024) }
		start, stop := "", ""
		if times {
			start, stop = f.Start.Round(time.Millisecond).String(), f.Stop.Round(time.Millisecond).String()
		}
		r.row(name, each(f.live()), each(f.Heap), each(f.Stacks), fmt.Sprintf("%.2f", float64(f.Goroutines)/float64(n)),
			each(f.RSS), start, stop)
	}
	row("supervised", hosted, true)
	row("driver alone, one goroutine in Receive", bare, true)
	own := hosted.minus(bare)
	row("own share", own, false)
	perOwn, per := own.live()/int64(n), hosted.live()/int64(n)
	goals := []string{fmt.Sprintf("own share at most %d KiB: %s", ownBytesGoal>>10, verdict(perOwn <= ownBytesGoal))}
	if k.clientGoroutines {
		goals = append(goals, fmt.Sprintf("at most %d goroutines of its own: %s", ownGoroutinesGoal, verdict(own.Goroutines/n <= ownGoroutinesGoal)))
	} else {
		goals = append(goals, fmt.Sprintf("at most %d goroutines with the driver's: %s", ownGoroutinesGoal, verdict(hosted.Goroutines/n <= ownGoroutinesGoal)))
	}
	if k.bytes > 0 {
		goals = append(goals, fmt.Sprintf("client included at most %d KiB: %s", k.bytes>>10, verdict(per <= k.bytes)))
	}
	r.notef("Goals: %s.", strings.Join(goals, "; "))
	return r
}
