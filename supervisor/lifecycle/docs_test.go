package lifecycle_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

const docs = "../../docs/lifecycle.md"

var update = flag.Bool("update", false, "write the generated parts of docs/lifecycle.md") //nolint:gochecknoglobals // flags are

// TestDocsShowTheTable: the matrix, the diagram and the table of the
// documentation are those of the code.
func TestDocsShowTheTable(t *testing.T) {
	old, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	text := string(old)
	for _, part := range []struct{ name, text string }{
		{"matrix", matrix},
		{"diagram", diagram()},
		{"table", table()},
	} {
		if text, err = replace(text, part.name, strings.TrimSpace(part.text)); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case text == string(old):
	case *update:
		if err := os.WriteFile(docs, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/lifecycle.md does not show the table as it is: run\n\tgo test ./supervisor/lifecycle -run %s -update", t.Name())
	}
}

// replace puts text between the markers of a part.
func replace(doc, part, text string) (string, error) {
	begin, end := "<!-- generated: "+part+" -->\n", "<!-- end: "+part+" -->\n"
	before, rest, ok := strings.Cut(doc, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("%s has no lines %q and %q in this order", docs, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + "\n" + text + "\n\n" + end + after, nil
}

// diagram draws the table: one arrow per pair of states, the phases of STOPPING
// in one box. Rows that stay where they are, are left to the table.
func diagram() string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> STOPPED\n    state STOPPING {\n")
	arrows(&b, "        ", func(r lifecycle.Row) bool { return stopping(r.From) && stopping(r.To) })
	b.WriteString("    }\n")
	arrows(&b, "    ", func(r lifecycle.Row) bool { return !stopping(r.From) || !stopping(r.To) })
	b.WriteString("```\n")
	return b.String()
}

func arrows(b *strings.Builder, indent string, wanted func(lifecycle.Row) bool) {
	type pair struct{ from, to lifecycle.State }
	var order []pair
	events := map[pair][]string{}
	for _, r := range lifecycle.Table() {
		if p := (pair{r.From, r.To}); r.From != r.To && wanted(r) {
			if events[p] == nil {
				order = append(order, p)
			}
			events[p] = append(events[p], r.On.String())
		}
	}
	for _, p := range order {
		fmt.Fprintf(b, "%s%s --> %s: %s\n", indent, shown(p.from), shown(p.to), strings.Join(events[p], ", "))
	}
}

func stopping(s lifecycle.State) bool { return s.Public() == pb.State_STATE_STOPPING }

// shown is a state as users see it, or the phase of STOPPING.
func shown(s lifecycle.State) string {
	if stopping(s) {
		return s.String()
	}
	return strings.TrimPrefix(s.Public().String(), "STATE_")
}

func table() string {
	var b strings.Builder
	b.WriteString("| in | on | goes to | and does |\n|---|---|---|---|\n")
	for _, r := range lifecycle.Table() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", shown(r.From), r.On, shown(r.To), r.Do)
	}
	return b.String()
}

// TestDocsExplainEveryWord: each event and each effect of the table has its
// line in the documentation.
func TestDocsExplainEveryWord(t *testing.T) {
	raw, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	for _, e := range lifecycle.Events() {
		if !strings.Contains(doc, "\n- `"+e.String()+"`: ") {
			t.Errorf("the event %s is not explained", e)
		}
	}
	for e := lifecycle.Open; e <= lifecycle.Finish; e++ {
		if !strings.Contains(doc, "\n- *"+e.String()+"*: ") {
			t.Errorf("the effect %s is not explained", e)
		}
	}
	for _, s := range lifecycle.States() {
		if !strings.Contains(doc, "\n- **"+shown(s)+"**: ") {
			t.Errorf("the state %s is not explained", shown(s))
		}
	}
	for n, name := range pb.ConditionType_name {
		if n == 0 {
			continue
		}
		word := strings.TrimPrefix(name, "CONDITION_TYPE_")
		if !strings.Contains(doc, "\n- **"+word+"**: ") {
			t.Errorf("the condition %s is not explained", word)
		}
	}
}
