package app

import (
	"bytes"
	"fmt"
	"testing"
)

func TestTable(t *testing.T) {
	table := NewTable("RUN", "STEP", "REWARD", "NOTE")
	table.Row("a", 3, 0.123456, "first\nline\x1b[2J")
	table.Row("日本", 12, nil, "")
	table.Row("longer-name", "-", 1.0, "x")
	var b bytes.Buffer
	if err := table.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"RUN          STEP  REWARD  NOTE\n" +
		"a               3  0.1235  first line␛[2J\n" +
		"日本           12\n" +
		"longer-name     -       1  x\n"
	if b.String() != want {
		t.Errorf("it is\n%s\nwant\n%s", b.String(), want)
	}
}

func TestTableWithoutHead(t *testing.T) {
	table := NewTable()
	table.Row("publish", "rondo.in.>")
	table.Row("never publish", "$JS.>")
	var b bytes.Buffer
	if err := table.Print(&b); err != nil {
		t.Fatal(err)
	}
	if want := "publish        rondo.in.>\nnever publish  $JS.>\n"; b.String() != want {
		t.Errorf("it is\n%s", b.String())
	}
}

func TestColumns(t *testing.T) {
	var b bytes.Buffer
	c := NewColumns(&b)
	fmt.Fprintln(c, "scored\tmean\t  task")
	fmt.Fprintf(c, "%d\t%.2f\t  %s\n", 3, 0.5, "fix-a")
	fmt.Fprintf(c, "%d\t-\t  %s\n", 12, "fix-\x1b[2Jb")
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "scored  mean  task\n     3  0.50  fix-a\n    12     -  fix-␛[2Jb\n"; b.String() != want {
		t.Errorf("it is\n%s", b.String())
	}
	b.Reset()
	fmt.Fprintln(c, "  steps\t3\t")
	if err := c.Flush(); err != nil || b.String() != "  steps  3\n" {
		t.Errorf("%v: the next one is\n%s", err, b.String())
	}
}
