package dashboard

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// marks marks two of the rollouts that mixed begins, and takes the mark of a third away.
func (d *desk) marks() {
	d.Helper()
	for i, m := range []struct {
		rollout string
		said    events.MarkRecorded
	}{
		{"g000004-0", events.MarkRecorded{Marked: true, Text: "=HYPERLINK(1) <img src=x>"}},
		{"g000002-0", events.MarkRecorded{Marked: true, Text: "reads the tests"}},
		{"g000002-0", events.MarkRecorded{Marked: true}},
		{"g000003-0", events.MarkRecorded{Marked: true}},
		{"g000003-0", events.MarkRecorded{Text: "not odd"}},
	} {
		d.state(events.MarkRecordedType, m.rollout, events.Ordinal(i), m.said)
	}
}

// TestMarkedRollouts: the file says what is marked and why, the page of a rollout has all that was
// said, and no comment is markup or a formula.
func TestMarkedRollouts(t *testing.T) {
	d := newDesk(t)
	d.mixed()
	d.marks()
	rows, err := csv.NewReader(strings.NewReader(d.show("/runs/live/rollouts.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows[1:] {
		got = append(got, row[slices.Index(columns, "marked")]+" "+row[slices.Index(columns, "comment")])
	}
	if want := []string{"true '=HYPERLINK(1) <img src=x>", "false not odd", "true reads the tests",
		"false "}; !slices.Equal(got, want) {
		t.Errorf("the file has %q, want %q", got, want)
	}
	d.has("/runs/live", `title="reads the tests">marked<`, `title="=HYPERLINK(1) &lt;img src=x&gt;">marked<`)
	d.has("/runs/live/rollouts/g000003-0", "<dd>marked</dd>", "<dd>no longer marked: not odd</dd>", ">Mark</button>",
		"<code>rondo archive seal live</code>")
	d.has("/runs/live/rollouts/g000004-0", "marked: =HYPERLINK(1) &lt;img src=x&gt;",
		">Comment</button>", `value="unmark"`)
	if past := d.show("/runs/live/rollouts/g000003-0?at=16"); strings.Contains(past, "Mark this rollout") {
		t.Error("the past can be marked")
	}
	for _, path := range []string{"/runs/live?marked=no", "/runs/live/rollouts.csv?marked=no"} {
		if w := d.ask(path); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// TestMarkByForm: nobody marks a rollout without the token, and a comment has a bounded length.
// The intake judges the rest.
func TestMarkByForm(t *testing.T) {
	d := newDesk(t)
	d.mixed()
	send := func(rollout, token, action, text string) *httptest.ResponseRecorder {
		form := url.Values{"token": {token}, "action": {action}, "text": {text}}
		r := httptest.NewRequest(http.MethodPost, "/runs/live/rollouts/"+rollout+"/mark",
			strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		d.d.ServeHTTP(w, r)
		return w
	}
	for name, c := range map[string]struct {
		rollout, token, action, text string
		want                         int
	}{
		"no token":            {"g000004-0", "", "mark", "x", http.StatusForbidden},
		"another token":       {"g000004-0", secret + "x", "mark", "x", http.StatusForbidden},
		"no action":           {"g000004-0", secret, "", "x", http.StatusNotFound},
		"a pattern":           {"*", secret, "mark", "x", http.StatusNotFound},
		"too long a form":     {"g000004-0", secret, "mark", strings.Repeat("x", maxMarkForm), http.StatusBadRequest},
		"bytes that are none": {"g000004-0", secret, "mark", "\xff", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if w := send(c.rollout, c.token, c.action, c.text); w.Code != c.want {
				t.Errorf("%d, want %d: %s", w.Code, c.want, w.Body)
			}
		})
	}
	if marks := servicetest.All(t, d.log, "live", events.MarkRecordedType); len(marks) > 0 {
		t.Errorf("%d marks", len(marks))
	}
}

// TestLongestComment: a comment has 2000 characters, whatever each of them is in
// a form, and not one more.
func TestLongestComment(t *testing.T) {
	d := newDesk(t)
	d.mixed()
	asked, err := d.log.Conn().Subscribe(events.IntakeSubject("live", events.MarkRecordedType, "*"), func(m *nats.Msg) {
		var said events.MarkRecorded
		if err := json.Unmarshal(m.Data, &said); err != nil || utf8.RuneCountInString(said.Text) != 2000 {
			t.Errorf("the intake gets %d characters: %v", utf8.RuneCountInString(said.Text), err)
		}
		if err := d.log.Conn().Publish(m.Header[events.HeaderReply][0], []byte(`{"sequence":1}`)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Unsubscribe()
	for _, character := range []string{"x", "ä", "😀", "\r\n"} {
		for n, want := range map[int]string{2000: "", 2001: "at most 2000"} {
			text := "x" + strings.Repeat(character, n-2) + "x"
			form := url.Values{"token": {secret}, "action": {"mark"}, "text": {text}}
			r := httptest.NewRequest(http.MethodPost, "/runs/live/rollouts/g000004-0/mark",
				strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			d.d.ServeHTTP(w, r)
			if want == "" && w.Code != http.StatusSeeOther ||
				want != "" && (w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want)) {
				t.Errorf("%d of %q: %d: %s", n, character, w.Code, w.Body)
			}
		}
	}
}
