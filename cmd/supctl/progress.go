package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// progress tells people on stderr what a wait is waiting for: on a terminal a
// line per consumer that is drawn again and again, else a line per change,
// unless there are too many to read.
type progress struct {
	w    io.Writer
	live bool
	// many: more consumers are waited for than have a line of their own.
	many bool
	now  func() time.Time
	size func() (columns, rows int)
	// drawn counts the lines on the terminal that the next draw replaces.
	drawn int
}

// maxLines bounds the lines drawn again.
const maxLines = 12

func (a *app) progress() *progress {
	return &progress{w: a.env.stderr, live: a.env.stderrTTY && a.env.getenv("TERM") != "dumb", now: a.env.now, size: a.env.size}
}

// shown picks those that have a line of their own.
func (p *progress) shown(left []*pending) []*pending {
	n := maxLines
	if p.live {
		_, rows := p.size()
		n = max(1, min(n, rows-2))
	}
	return left[:min(n, len(left))]
}

// draw replaces the lines on the terminal.
func (p *progress) draw(left []*pending) {
	if !p.live {
		return
	}
	columns, _ := p.size()
	var b strings.Builder
	b.WriteString(p.erase())
	shown := p.shown(left)
	var t table
	for _, item := range shown {
		t.add(p.line(item)...)
	}
	var drawn strings.Builder
	t.write(&drawn, false)
	for line := range strings.Lines(drawn.String()) {
		fmt.Fprintf(&b, "%s\n", fit(strings.TrimSuffix(line, "\n"), columns))
	}
	p.drawn = len(shown)
	if more := len(left) - len(shown); more > 0 {
		fmt.Fprintf(&b, "%s\n", fit(fmt.Sprintf("and %d more", more), columns))
		p.drawn++
	}
	_, _ = io.WriteString(p.w, b.String())
}

// clear removes the lines for good.
func (p *progress) clear() {
	_, _ = io.WriteString(p.w, p.erase())
	p.drawn = 0
}

func (p *progress) erase() string {
	if p.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", p.drawn)
}

// say writes a line that stays.
func (p *progress) say(s string) {
	_, _ = io.WriteString(p.w, p.erase()+printable(s)+"\n")
	p.drawn = 0
}

// changed tells a change of state where lines are not drawn again.
func (p *progress) changed(item *pending, c *pb.Consumer) {
	if p.live || p.many {
		return
	}
	s := fmt.Sprintf("%s %s", item.key.name, textform.ShortEnum(c.GetStatus().GetState()))
	if n := note(c, p.now()); n != "" {
		s += ": " + oneLine(n)
	}
	if n := c.GetStatus().GetInFlight(); n > 0 {
		s += fmt.Sprintf(", %d in flight", n)
	}
	p.say(s)
}

// line is orders, DRAINING, "3 in flight, oldest 4s", "12s left".
func (p *progress) line(item *pending) []cell {
	if item.consumer == nil {
		return []cell{text(item.key.name), text(textform.ShortEnum(item.result.GetState()))}
	}
	s := item.consumer.GetStatus()
	work := fmt.Sprintf("%d in flight", s.GetInFlight())
	if s.GetOldest() != nil {
		work += ", oldest " + oldestOf(s)
	}
	return []cell{text(item.key.name), text(textform.ShortEnum(s.GetState())), text(work), text(note(item.consumer, p.now()))}
}

// fit cuts a line to the terminal, so that each takes exactly one row.
func fit(s string, columns int) string {
	r := []rune(s)
	if columns <= 1 || len(r) < columns {
		return s
	}
	return string(r[:columns-2]) + "…"
}
