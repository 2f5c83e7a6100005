package kafka

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errDead = errors.New("connection refused by the test's gate")

// gate stands between the driver and its brokers: it can break connections, hold
// up what they carry, and refuse new ones. It works in virtual time as well.
type gate struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex
	ends map[net.Conn]struct{}
	dead bool
	// thawed is closed while nothing is held up, heard while answers come through.
	thawed, heard chan struct{}
	// corrupt replaces bytes of answers.
	corrupt func([]byte) []byte
	work    sync.WaitGroup
}

func newGate(dial func(ctx context.Context, network, address string) (net.Conn, error)) *gate {
	g := &gate{dial: dial, ends: map[net.Conn]struct{}{}, thawed: make(chan struct{}), heard: make(chan struct{})}
	close(g.thawed)
	close(g.heard)
	return g
}

func (g *gate) connect(ctx context.Context, network, address string) (net.Conn, error) {
	g.mu.Lock()
	dead, thawed := g.dead, g.thawed
	g.mu.Unlock()
	if dead {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errDead}
	}
	select {
	case <-thawed:
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	far, err := g.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	near, middle := net.Pipe()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		_ = far.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: errDead}
	}
	g.ends[middle], g.ends[far] = struct{}{}, struct{}{}
	g.work.Go(func() { g.pump(middle, far, false) })
	g.work.Go(func() { g.pump(far, middle, true) })
	return near, nil
}

// pump carries bytes until either end is closed.
func (g *gate) pump(from, to net.Conn, answers bool) {
	defer func() {
		for _, c := range []net.Conn{from, to} {
			_ = c.Close() // the second close of a pair has nothing to say
			g.mu.Lock()
			delete(g.ends, c)
			g.mu.Unlock()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		g.mu.Lock()
		thawed, heard, corrupt := g.thawed, g.heard, g.corrupt
		g.mu.Unlock()
		<-thawed
		data := buf[:n]
		if answers {
			<-heard
			if corrupt != nil {
				data = corrupt(data)
			}
		}
		if n > 0 {
			if _, err := to.Write(data); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.ends {
		_ = c.Close() // the pumps end of it
	}
}

func (g *gate) kill() {
	g.mu.Lock()
	g.dead = true
	g.mu.Unlock()
	g.cut()
}

func (g *gate) revive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = false
}

func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.thawed = make(chan struct{})
}

func (g *gate) thaw() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.thawed)
}

// deafen keeps answers away while requests go through.
func (g *gate) deafen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = make(chan struct{})
}

func (g *gate) hear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.heard)
}

func (g *gate) corruptBy(f func([]byte) []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.corrupt = f
}
