package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestMark: the command marks a rollout and takes the mark away, and says before the intake is
// asked what cannot be a mark.
func TestMark(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1)
	output, err := clitest.Run(t, NewMark, "mark", "first", "g000001-0", "--text", "look", "--dir", r.Dir, "--json")
	var said marked
	if err := json.Unmarshal([]byte(output), &said); err != nil {
		t.Fatal(err, output)
	}
	if want := (marked{Run: "first", Rollout: "g000001-0", Marked: true, Text: "look",
		Sequence: said.Sequence}); err != nil || said != want || said.Sequence == 0 {
		t.Errorf("%+v, %v", said, err)
	}
	if output, err = clitest.Run(t, NewMark, "mark", "first", "g000001-0", "--remove", "--dir", r.Dir); err != nil ||
		!strings.Contains(output, "is no longer marked") {
		t.Errorf("%v: %s", err, output)
	}
	for want, args := range map[string][]string{
		"a comment has at most 2000 characters, and this one has 2001": {"first", "g000001-0", "--text",
			strings.Repeat("ä", 2001)},
		"--text: leave it out":     {"first", "g000001-0", "--text", ""},
		"run first has no rollout": {"first", "g000009-0"},
		"give an id such as":       {"first", "*"},
		"nothing":                  {"nothing", "g000001-0"},
		"ROLLOUT is missing":       {"first"},
	} {
		t.Run(want, func(t *testing.T) {
			if out, err := clitest.Run(t, NewMark, append([]string{"mark", "--dir", r.Dir}, args...)...); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	var texts []string
	for _, e := range servicetest.All(t, r.Log, "first", events.MarkRecordedType) {
		m, err := events.Data[events.MarkRecorded](e)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, fmt.Sprint(m.Marked, " ", m.Text))
	}
	if strings.Join(texts, ",") != "true look,false " {
		t.Errorf("%q are on the log", texts)
	}
}

// TestMarkBehindTheEnd: a closed run takes marks, which are archived when somebody
// seals it, as the help says.
func TestMarkBehindTheEnd(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1)
	servicetest.CloseRun(t, r.Log, "first")
	seal := func() {
		natstest.Eventually(t, "the run is archived to its end, though services still end their work", func() bool {
			if _, err := r.Log.Appender.Seal(t.Context(), "first", true); err != nil {
				t.Fatal(err)
			}
			_, err := r.Log.Archive.Deletable(t.Context(), "first")
			return err == nil
		})
	}
	seal()
	if output, err := clitest.Run(t, NewMark, "mark", "first", "g000001-0", "--text", "late",
		"--dir", r.Dir); err != nil {
		t.Fatal(err, output)
	}
	if _, err := r.Log.Archive.Deletable(t.Context(), "first"); !errors.Is(err, eventlog.ErrNotArchived) {
		t.Errorf("the mark is in the archive, or the stream may go without it: %v", err)
	}
	seal()
	if err := r.Log.Streams.DeleteRun(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if marks := servicetest.All(t, r.Log, "first", events.MarkRecordedType); len(marks) != 1 {
		t.Errorf("the archive has %d marks", len(marks))
	}
}
