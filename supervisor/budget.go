package supervisor

import (
	"context"
	"sync"
)

// budget bounds the bytes in flight of many consumers: of a namespace, and
// through parent of the process. It is charged when messages have arrived. Each
// member may ask for its share of what is free, so that all together do not
// exceed it by more than one message each.
type budget struct {
	parent *budget
	limit  int64

	mu      sync.Mutex
	used    int64
	members int64
	wait    chan struct{} // closed when there is room again
}

func newBudget(limit int64, parent *budget) *budget { return &budget{limit: limit, parent: parent} }

// join counts members.
func (b *budget) join(n int64) {
	for ; b != nil; b = b.parent {
		b.mu.Lock()
		b.members += n
		b.mu.Unlock()
	}
}

func (b *budget) charge(n int64) {
	for ; b != nil; b = b.parent {
		b.mu.Lock()
		b.used += n
		b.mu.Unlock()
	}
}

func (b *budget) release(n int64) {
	for ; b != nil; b = b.parent {
		b.mu.Lock()
		b.used -= n
		if b.wait != nil && b.used < b.limit {
			close(b.wait)
			b.wait = nil
		}
		b.mu.Unlock()
	}
}

// room waits until bytes may be asked for, and says how many at the most.
func (b *budget) room(ctx context.Context) (int64, error) {
	least := int64(1) << 62
	for at := b; at != nil; {
		at.mu.Lock()
		free, members := at.limit-at.used, at.members
		if free > 0 {
			at.mu.Unlock()
			least = min(least, max(1, free/max(1, members)))
			at = at.parent
			continue
		}
		if at.wait == nil {
			at.wait = make(chan struct{})
		}
		wait := at.wait
		at.mu.Unlock()
		select {
		case <-wait:
			at, least = b, 1<<62
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return least, nil
}

// inUse is the bytes charged now.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
