package memory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
)

// Ten thousand idle subscriptions, each with a queue of its own and a Receive that
// blocks, need no goroutine of the driver and less than 2 KiB each.
func TestIdle(t *testing.T) {
	const n, bytes = 10_000, 2048
	b := memory.NewBroker(memory.Options{Forget: true})
	c := open(t, b, "main")
	d := &memory.Driver{Broker: b}
	subs := make([]brokers.Subscription, n)
	before, goroutines := heap(), runtime.NumGoroutine()
	for i := range subs {
		p, _ := d.Parse(specOf("main", fmt.Sprintf("q%d", i)))
		s, err := c.Subscribe(context.Background(), p.Source, silent{})
		if err != nil {
			t.Fatal(err)
		}
		subs[i] = s
	}
	if got := runtime.NumGoroutine(); got != goroutines {
		t.Errorf("%d goroutines, %d before", got, goroutines)
	}
	each := (heap() - before) / n
	t.Logf("%d bytes for each idle subscription and its queue", each)
	if each > bytes {
		t.Errorf("%d bytes for each, want at most %d", each, bytes)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	for _, s := range subs {
		wg.Go(func() {
			if _, err := s.Receive(ctx, brokers.Credit{Messages: 1, Bytes: 1}); !errors.Is(err, context.Canceled) {
				t.Errorf("receive: %v", err)
			}
		})
	}
	cancel(nil)
	wg.Wait()
	for _, s := range subs {
		if rep, err := s.Close(context.Background(), nil); err != nil || !rep.Released {
			t.Fatalf("close reports %+v, %v", rep, err)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
