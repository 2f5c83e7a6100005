package rabbitmq

import "sync"

// outbox lists the subscriptions of a link that have acknowledgements to send. One
// goroutine writes them: a write blocks while the broker does not read, and no
// caller may run into that.
type outbox struct {
	wake chan struct{} // room for one

	mu   sync.Mutex
	list []*subscription
}

func (o *outbox) add(s *subscription) {
	o.mu.Lock()
	o.list = append(o.list, s)
	first := len(o.list) == 1
	o.mu.Unlock()
	if first {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
}

func (o *outbox) run(down <-chan struct{}) {
	var list []*subscription
	for {
		select {
		case <-o.wake:
		case <-down:
			return
		}
		o.mu.Lock()
		list, o.list = o.list, list[:0]
		o.mu.Unlock()
		for _, s := range list {
			_, _ = s.write(false) // the channel is over; pump hears why
		}
		clear(list)
	}
}
