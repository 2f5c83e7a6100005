package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// This file reads bbolt's format (version 2): pages of one size, each with a
// header of 16 bytes; pages 0 and 1 are the metas of the last two commits; from
// the newer one hang the tree of buckets and the list of free pages. bbolt's
// own check follows every pointer unchecked, on a goroutine of its own, where
// a bad one ends the process; here each is checked before it is followed.

const (
	headerSize  = 16
	elementSize = 16
	// An entry of the root is a bucket: a root page and a sequence, followed,
	// when the root page is 0, by a page within the entry.
	bucketSize = 16

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	// metaSize is what a meta's checksum covers.
	metaSize    = 56
	minPageSize = 1 << 10
	maxPageSize = 1 << 24
)

// bbolt writes numbers as the machine has them.
func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// pages is a file under inspection.
type pages struct {
	r    io.ReaderAt
	size uint64
	// end is the first page beyond those in use.
	end  uint64
	seen []bool
	// visit gets every record.
	visit func(bucket string, key, value []byte)
}

// checkPages reads all of a bbolt file that is in use, gives every record of
// every bucket to visit, and reports the first thing that is wrong: a commit
// lost, a pointer out of place, keys out of order, a page used twice or not
// at all. Slices are valid until visit returns.
func checkPages(r io.ReaderAt, size int64, visit func(bucket string, key, value []byte)) error {
	m, err := newestMeta(r, uint64(size))
	if err != nil {
		return err
	}
	p := &pages{r: r, size: m.pageSize, end: m.end, seen: make([]bool, m.end), visit: visit}
	if err := p.freelist(m.freelist); err != nil {
		return err
	}
	if err := p.tree(m.root, nil, p.bucket); err != nil {
		return err
	}
	for id := uint64(2); id < p.end; id++ {
		if !p.seen[id] {
			return fmt.Errorf("page %d is neither used nor free", id)
		}
	}
	return nil
}

// meta is what one commit left.
type meta struct {
	pageSize, root, freelist, end, tx uint64
}

// newestMeta reads both metas. A single bad one is fatal too: whether the
// commit it belonged to was acknowledged cannot be known, and a disk that
// writes sectors whole never leaves half of one.
func newestMeta(r io.ReaderAt, size uint64) (meta, error) {
	if size == 0 {
		return meta{}, errors.New("the file is empty")
	}
	first, err := readMeta(r, 0, 0)
	if err != nil {
		return meta{}, err
	}
	second, err := readMeta(r, 1, first.pageSize)
	if err != nil {
		return meta{}, err
	}
	older, newer := first, second
	if older.tx > newer.tx {
		older, newer = newer, older
	}
	switch {
	case newer.pageSize != older.pageSize:
		return meta{}, errors.New("the two meta pages do not belong together")
	case newer.end < 4 || newer.end > size/newer.pageSize:
		return meta{}, fmt.Errorf("the file is cut off: it has %d bytes of %d", size, newer.end*newer.pageSize)
	}
	return newer, nil
}

func readMeta(r io.ReaderAt, id, pageSize uint64) (meta, error) {
	b := make([]byte, headerSize+metaSize+8)
	if _, err := r.ReadAt(b, int64(id*pageSize)); err != nil {
		return meta{}, fmt.Errorf("read meta page %d: %w", id, err)
	}
	sum := fnv.New64a()
	sum.Write(b[headerSize : headerSize+metaSize])
	m := b[headerSize:]
	switch {
	case u32(m) != boltMagic:
		return meta{}, errors.New("it is no file of supervisord's")
	case sum.Sum64() != u64(m[metaSize:]), u64(b) != id, u16(b[8:]) != flagMeta:
		return meta{}, fmt.Errorf("meta page %d: %w", id, errChecksum)
	case u32(m[4:]) != boltVersion:
		return meta{}, fmt.Errorf("unknown file format %d", u32(m[4:]))
	}
	size := u32(m[8:])
	if size < minPageSize || size > maxPageSize || size&(size-1) != 0 {
		return meta{}, fmt.Errorf("meta page %d: page size %d", id, size)
	}
	return meta{
		pageSize: uint64(size),
		root:     u64(m[16:]),
		freelist: u64(m[32:]),
		end:      u64(m[40:]),
		tx:       u64(m[48:]),
	}, nil
}

// claim marks a page as used, once.
func (p *pages) claim(id uint64) error {
	switch {
	case id < 2 || id >= p.end:
		return fmt.Errorf("page %d does not exist", id)
	case p.seen[id]:
		return fmt.Errorf("page %d is used twice", id)
	}
	p.seen[id] = true
	return nil
}

// page reads and claims a page with those that overflow from it.
func (p *pages) page(id uint64) ([]byte, error) {
	if err := p.claim(id); err != nil {
		return nil, err
	}
	var header [headerSize]byte
	if _, err := p.r.ReadAt(header[:], int64(id*p.size)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	overflow := uint64(u32(header[12:]))
	if u64(header[:]) != id || overflow >= p.end-id {
		return nil, fmt.Errorf("page %d: bad header", id)
	}
	for i := range overflow {
		if err := p.claim(id + 1 + i); err != nil {
			return nil, err
		}
	}
	b := make([]byte, (overflow+1)*p.size)
	if _, err := p.r.ReadAt(b, int64(id*p.size)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	return b, nil
}

func (p *pages) freelist(id uint64) error {
	b, err := p.page(id)
	if err != nil {
		return fmt.Errorf("list of free pages: %w", err)
	}
	ids, count := b[headerSize:], uint64(u16(b[10:]))
	if count == 0xFFFF {
		count, ids = u64(ids), ids[8:]
	}
	if u16(b[8:]) != flagFreelist || count > uint64(len(ids)/8) {
		return errors.New("list of free pages: bad header")
	}
	for i := range count {
		if err := p.claim(u64(ids[8*i:])); err != nil {
			return fmt.Errorf("list of free pages: %w", err)
		}
	}
	return nil
}

// each is called with every entry of a tree's leaves.
type each func(key, value []byte, isBucket bool) error

// tree reads the pages from id downwards. A branch names each of its children
// by the child's first key; nil is the root. bbolt's own check lets that key be
// above what the branch says; bbolt then, when it changes the child, does not
// find it in the branch and adds it a second time.
func (p *pages) tree(id uint64, first []byte, f each) error {
	b, err := p.page(id)
	if err != nil {
		return err
	}
	switch u16(b[8:]) {
	case flagLeaf:
		err = leaf(b, first, f)
	case flagBranch:
		return p.branch(id, b, first, f)
	default:
		err = errors.New("bad type")
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func (p *pages) branch(id uint64, b, first []byte, f each) error {
	elements, err := entries(b, first, func(e []byte) (pos, key, value uint32) {
		return u32(e), u32(e[4:]), 0
	})
	if err != nil || len(elements) == 0 {
		return fmt.Errorf("page %d: bad branch: %w", id, errors.Join(err, errChecksum))
	}
	for _, e := range elements {
		if err := p.tree(u64(e.head[8:]), e.key, f); err != nil {
			return err
		}
	}
	return nil
}

func leaf(b, first []byte, f each) error {
	elements, err := entries(b, first, func(e []byte) (pos, key, value uint32) {
		return u32(e[4:]), u32(e[8:]), u32(e[12:])
	})
	if err != nil {
		return err
	}
	for _, e := range elements {
		flags := u32(e.head)
		if flags > 1 {
			return fmt.Errorf("entry %q: bad flags", e.key)
		}
		if err := f(e.key, e.value, flags == 1); err != nil {
			return err
		}
	}
	return nil
}

// bucket reads one entry of the root.
func (p *pages) bucket(name, value []byte, isBucket bool) error {
	if !isBucket || len(value) < bucketSize {
		return fmt.Errorf("bucket %q: bad entry", name)
	}
	record := func(key, value []byte, isBucket bool) error {
		if isBucket {
			return fmt.Errorf("bucket %q: unexpected bucket %q", name, key)
		}
		p.visit(string(name), key, value)
		return nil
	}
	var err error
	if root := u64(value); root != 0 {
		err = p.tree(root, nil, record)
	} else if inline := value[bucketSize:]; len(inline) < headerSize || u16(inline[8:]) != flagLeaf {
		err = errors.New("bad inline page")
	} else {
		err = leaf(inline, nil, record)
	}
	if err != nil {
		return fmt.Errorf("bucket %q: %w", name, err)
	}
	return nil
}

type entry struct{ head, key, value []byte }

// entries cuts a page into its entries, whose positions are relative to their
// heads, and checks the order of the keys.
func entries(b, first []byte, sizes func(head []byte) (pos, key, value uint32)) ([]entry, error) {
	count := int(u16(b[10:]))
	data := headerSize + count*elementSize
	if data > len(b) {
		return nil, fmt.Errorf("%d entries do not fit", count)
	}
	if first != nil && count == 0 {
		return nil, errors.New("no entries")
	}
	out := make([]entry, 0, count)
	for i := range count {
		at := headerSize + i*elementSize
		e := entry{head: b[at : at+elementSize]}
		pos, key, value := sizes(e.head)
		start := uint64(at) + uint64(pos)
		mid := start + uint64(key)
		end := mid + uint64(value)
		if key == 0 || start < uint64(data) || end > uint64(len(b)) {
			return nil, fmt.Errorf("entry %d is out of place", i)
		}
		e.key, e.value = b[start:mid:mid], b[mid:end:end]
		switch {
		case i == 0 && first != nil && !bytes.Equal(e.key, first), i > 0 && bytes.Compare(out[i-1].key, e.key) >= 0:
			return nil, fmt.Errorf("key %q is out of order", e.key)
		}
		out = append(out, e)
	}
	return out, nil
}
