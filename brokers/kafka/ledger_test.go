package kafka

import "sync"

// ledger writes down what was handled.
type ledger struct {
	mu    sync.Mutex
	total int
	times map[string]int
	at    map[string]map[int64]bool // offsets by partition
}

func newLedger(total int) *ledger {
	return &ledger{total: total, times: map[string]int{}, at: map[string]map[int64]bool{}}
}

func (l *ledger) add(body, origin string, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[body]++
	if l.at[origin] == nil {
		l.at[origin] = map[int64]bool{}
	}
	l.at[origin][offset] = true
}

// below is the lowest offset of a partition that was not handled.
func (l *ledger) below(origin string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := int64(0); ; o++ {
		if !l.at[origin][o] {
			return o
		}
	}
}

func (l *ledger) all() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times) == l.total
}

func (l *ledger) twice() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, k := range l.times {
		if k > 1 {
			n++
		}
	}
	return n
}
