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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	natsdriver "github.com/seed-111f5b8e/supervisord/brokers/nats"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// Goals per idle consumer.
const (
	ownBytesGoal      = 16 << 10
	ownGoroutinesGoal = 4
	natsBytesGoal     = 28 << 10
	// idlePerStream is below the server's default cap of 1,000 consumers.
	idlePerStream = 500
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

// rest reads the footprint after collecting what is no longer used. Twice: the
// first collection may leave what finalizers held, and shrinks stacks.
func rest() footprint {
	runtime.GC()
	runtime.GC()
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

// idleSetup is a driver with n empty sources.
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

func memoryIdle(n int) idleSetup {
	s := idleSetup{driver: &memory.Driver{Broker: memory.NewBroker(memory.Options{})}, conn: memoryConnection()}
	for i := range n {
		name := "idle-" + strconv.Itoa(i)
		s.specs = append(s.specs, newSpec(name, memorySource(name)))
	}
	return s
}

// natsIdle makes n durables of their own on as few streams as the server's cap
// allows; the streams are there already.
func natsIdle(n int, url string) idleSetup {
	s := idleSetup{driver: natsdriver.Driver{}, conn: natsConnection(url)}
	for i := range n {
		name := "idle-" + strconv.Itoa(i)
		stream := idleStream(i / idlePerStream)
		s.specs = append(s.specs, newSpec(name, idleNATSSource(stream, name)))
	}
	return s
}

// idleNATSSource leaves all but names to the defaults.
func idleNATSSource(stream, name string) *pb.Source {
	return &pb.Source{Broker: &pb.Source_Nats{Nats: &pb.NatsSource{
		Stream: stream, Durable: name, FilterSubjects: []string{stream + "." + name},
	}}}
}

func idleStream(i int) string { return "IDLE" + strconv.Itoa(i) }

// hosted measures n consumers of a supervisor.
func (s idleSetup) hosted(ctx context.Context) (footprint, error) {
	h, err := newHost(s.driver, s.conn, map[string]supervisor.Handler{handlerName: noop()})
	if err != nil {
		return footprint{}, err
	}
	before := rest()
	began := time.Now()
	n := len(s.specs)
	if err := h.apply(ctx, s.specs...); err != nil {
		return footprint{}, errors.Join(err, h.close(ctx))
	}
	if err := h.await(ctx, pb.State_STATE_RUNNING, n); err != nil {
		return footprint{}, errors.Join(err, h.close(ctx))
	}
	start := time.Since(began)
	out := rest().minus(before)
	out.Start = start
	profiled := s.profile()
	began = time.Now()
	err = errors.Join(h.close(ctx), profiled)
	out.Stop = time.Since(began)
	return out, err
}

// bare measures the driver alone: n subscriptions, each with a goroutine that
// waits in Receive.
func (s idleSetup) bare(ctx context.Context) (footprint, error) {
	conn, err := connect(ctx, s.driver, s.conn)
	if err != nil {
		return footprint{}, err
	}
	before := rest()
	began := time.Now()
	receiving, cancel := context.WithCancelCause(ctx)
	var loops sync.WaitGroup
	subs := make([]brokers.Subscription, 0, len(s.specs))
	for _, spec := range s.specs {
		sub, e := subscribe(ctx, s.driver, conn, spec)
		if e != nil {
			err = e
			break
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
	start := time.Since(began)
	out := rest().minus(before)
	out.Start = start
	began = time.Now()
	cancel(errSeen)
	loops.Wait()
	err = errors.Join(err, closeAll(ctx, conn, subs...))
	out.Stop = time.Since(began)
	return out, err
}

// runIdlePart measures one footprint in a process that does nothing else.
func runIdlePart(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	n := fs.Int("n", 0, "consumers")
	url := fs.String("url", "", "of a NATS server; without one the memory driver")
	bare := fs.Bool("bare", false, "the driver alone")
	profile := fs.String("heap", "", "write what is live at rest into this file")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *profile != "" {
		runtime.MemProfileRate = 512
	}
	setup := memoryIdle(*n)
	if *url != "" {
		setup = natsIdle(*n, *url)
	}
	setup.heap = *profile
	measure := setup.hosted
	if *bare {
		measure = setup.bare
	}
	out, err := measure(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(out)
}

// idlePart runs one measurement in a process of its own.
func idlePart(ctx context.Context, n int, url string, bare bool, heap string) (footprint, error) {
	self, err := os.Executable()
	if err != nil {
		return footprint{}, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "idle-part", "-n", strconv.Itoa(n), "-url", url, "-bare="+strconv.FormatBool(bare), "-heap", heap)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return footprint{}, fmt.Errorf("a process with %d consumers: %w", n, err)
	}
	var out footprint
	return out, json.Unmarshal(b, &out)
}

// runIdle measures what an idle consumer holds.
func runIdle(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	n := fs.Int("n", 10_000, "consumers in one process")
	driver := fs.String("driver", "memory", "memory or nats")
	heap := fs.String("heap", "", "write a pprof profile of what the consumers hold into this file")
	results := fs.String("results", "", "also put the table into this file (bench/RESULTS.md)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var hosted, bare footprint
	var err error
	switch *driver {
	case "memory":
		hosted, bare, err = bothParts(ctx, *n, *heap, func(context.Context) (string, func() error, error) {
			return "", func() error { return nil }, nil
		})
	case "nats":
		hosted, bare, err = bothParts(ctx, *n, *heap, func(ctx context.Context) (string, func() error, error) {
			return idleServer(ctx, *n)
		})
	default:
		return fmt.Errorf("-driver %s: use memory or nats", *driver)
	}
	if err != nil {
		return err
	}
	return idleReport(*driver, *n, hosted, bare).publish(w, *results)
}

// bothParts measures with and without a supervisor, each on a fresh server.
func bothParts(ctx context.Context, n int, heap string, serve func(context.Context) (string, func() error, error)) (hosted, bare footprint, err error) {
	for _, part := range []struct {
		bare bool
		heap string
		into *footprint
	}{{false, heap, &hosted}, {true, "", &bare}} {
		url, end, err := serve(ctx)
		if err != nil {
			return hosted, bare, err
		}
		*part.into, err = idlePart(ctx, n, url, part.bare, part.heap)
		if err = errors.Join(err, end()); err != nil {
			return hosted, bare, err
		}
	}
	return hosted, bare, nil
}

// idleServer is a server with streams for n durables.
func idleServer(ctx context.Context, n int) (url string, end func() error, err error) {
	s, err := startNATS(ctx)
	if err != nil {
		return "", nil, err
	}
	nc, err := nats.Connect(s.url)
	if err != nil {
		return "", nil, errors.Join(err, s.stop())
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	for i := 0; err == nil && i*idlePerStream < n; i++ {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: idleStream(i), Subjects: []string{idleStream(i) + ".>"}, Storage: jetstream.MemoryStorage,
		})
	}
	if err != nil {
		return "", nil, errors.Join(err, s.stop())
	}
	return s.url, s.stop, nil
}

func idleReport(driver string, n int, hosted, bare footprint) *report {
	r := &report{
		title: "Idle consumers, " + driver + " driver",
		lines: machine("github.com/nats-io/nats.go"),
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
	goals := []string{
		fmt.Sprintf("own share at most %d KiB: %s", ownBytesGoal>>10, verdict(perOwn <= ownBytesGoal)),
		fmt.Sprintf("at most %d goroutines with the driver's: %s", ownGoroutinesGoal, verdict(hosted.Goroutines <= ownGoroutinesGoal*n)),
	}
	if driver == "nats" {
		goals = append(goals, fmt.Sprintf("client included at most %d KiB: %s", natsBytesGoal>>10, verdict(per <= natsBytesGoal)))
	}
	r.notef("Goals: %s.", strings.Join(goals, "; "))
	return r
}
