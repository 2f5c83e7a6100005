package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordPool keeps the client's records for its next batches. Keys and values
// are in other memory, which deliveries hold on to.
type recordPool struct{ slabs sync.Pool }

var _ kgo.PoolRecords = (*recordPool)(nil)

// GetRecords returns a slice with capacity n.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.slabs.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return (*s)[:0]
	}
	return make([]kgo.Record, 0, n)
}

// PutRecords takes one back.
func (p *recordPool) PutRecords(s []kgo.Record) { p.slabs.Put(&s) }
