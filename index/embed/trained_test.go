package embed

import (
	"os"
	"testing"

	"github.com/rondo-rl/rondo/index/embed/table"
)

func TestTableIsWhole(t *testing.T) {
	file, err := os.ReadFile("static.table")
	if err != nil {
		t.Fatal(err)
	}
	if len(file) > 5<<19 {
		t.Errorf("the table has %d bytes, which every binary carries", len(file))
	}
	read, err := table.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	if c := read.Trained; c.Sources == 0 || c.Examples["go functions"] == 0 || c.Examples["python functions"] == 0 ||
		len(c.List) != 64 || len(c.Content) != 64 {
		t.Errorf("the table does not say what it was trained on: %+v", c)
	}
}
