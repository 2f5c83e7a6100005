package kafka

import "sort"

// place is where one record stands that was taken of a partition.
type place struct {
	offset int64
	epoch  int32 // of the partition's leader
	state  placeState
}

type placeState uint8

const (
	// out: with the caller, or in the driver for it.
	out placeState = iota
	// done: acked.
	done
	// freed: given back, and to be fetched again.
	freed
	// vanished: given back, and no longer in the log.
	vanished
)

// places is a ring of what was taken of a partition and stands above its
// position, in the order of offsets. What the log leaves out (compacted and
// control records) it leaves out as well.
type places struct {
	ring    []place // its length is a power of two
	head, n int
}

func (p *places) at(i int) *place { return &p.ring[(p.head+i)&(len(p.ring)-1)] }

// push appends a place above all others.
func (p *places) push(pl place) {
	if p.n == len(p.ring) {
		p.grow()
	}
	*p.at(p.n) = pl
	p.n++
}

func (p *places) grow() {
	ring := make([]place, max(64, 2*len(p.ring)))
	for i := range p.n {
		ring[i] = *p.at(i)
	}
	p.ring, p.head = ring, 0
}

// pop removes the lowest place.
func (p *places) pop() {
	p.head = (p.head + 1) & (len(p.ring) - 1)
	p.n--
}

// find returns the index of an offset, or of the first above it, and whether it
// is there. A log without holes needs no search.
func (p *places) find(offset int64) (int, bool) {
	if p.n == 0 {
		return 0, false
	}
	if i := offset - p.at(0).offset; i >= 0 && i < int64(p.n) && p.at(int(i)).offset == offset {
		return int(i), true
	}
	i := sort.Search(p.n, func(i int) bool { return p.at(i).offset >= offset })
	return i, i < p.n && p.at(i).offset == offset
}
