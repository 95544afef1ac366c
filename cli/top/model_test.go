package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/text/width"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/evaluation/steps"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/health"
)

// sample is a plane with one of everything, whose texts others wrote.
func sample() Snapshot {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	return Snapshot{
		At: at, Where: ".rondo", Outages: []health.Outage{{Kind: health.LogRefusesWrites, Of: "RONDO", Since: at,
			Reason: "the disk is full"}},
		Runs: []Run{
			{Name: "demo-1", Policy: "small", State: "open",
				Flight: steps.Flight{Stages: map[string]int{events.StageGenerator: 7, events.StageTools: 2,
					books.StageTrainer: 64}, Oldest: at.Add(-90 * time.Second), Version: 11},
				Last: &steps.Row{Step: 12, Figures: map[string]float64{"reward/mean": 0.4375, "staleness/max": 1,
					"throughput/sampled_tokens_per_second": 1234.5}}, Rewards: []float64{0, 0.5, 1}},
			{Name: "other", State: "paused", Reason: "the server\x1b[2J is away",
				Flight: steps.Flight{Stages: map[string]int{}}},
		},
		More: 3,
		Consumers: []Consumer{{"RONDO_demo-1", "generator-started-v1", 40, 8, 1},
			{"RONDO_demo-1", "scorer-finished-v1", 0, 0, 0}},
		Replicas: []Replica{{Policy: "small", Name: "http://10.0.0.1:8000", Version: 10, Behind: 1,
			At: at.Add(-time.Minute)}, {Policy: "small", Name: "b", Version: 3, Lost: true, At: at}},
		DeadLetters: Letters{Total: 2, Last: "no such\nrun", At: at.Add(-time.Hour)},
		Unknown:     []string{"consumers: not allowed"},
	}
}

// press is a key as the terminal sends it.
func press(m model, key tea.KeyPressMsg) (model, tea.Cmd) {
	next, cmd := m.Update(key)
	return next.(model), cmd
}

func sized(t *testing.T, w, h int) model {
	t.Helper()
	next, _ := model{}.Update(tea.WindowSizeMsg{Width: w, Height: h})
	next, _ = next.(model).Update(sample())
	return next.(model)
}

func TestTheScreenShowsThePlane(t *testing.T) {
	screen := sized(t, 200, 40).screen()
	for _, part := range []string{
		"open runs 2", "rollouts at work 9", "dead letters 2", "outage: ", "the disk is full",
		"not known: consumers: not allowed", "0.4375", "▁▄█", "1m", "1234", "the server",
		"and 3 more", "generator-started-v1", "http://10.0.0.1:8000", "lost", "1h ago: no such run", keys,
	} {
		if !strings.Contains(screen, part) {
			t.Errorf("it does not show %q:\n%s", part, screen)
		}
	}
	for _, part := range []string{"scorer-finished-v1", "\x1b[2J"} {
		if strings.Contains(screen, part) {
			t.Errorf("it shows %q:\n%s", part, screen)
		}
	}
}

// TestTheScreenBeforeTheLogIsRead: figures of a log that is read in part are not
// shown as those of the plane.
func TestTheScreenBeforeTheLogIsRead(t *testing.T) {
	next, _ := model{}.Update(tea.WindowSizeMsg{Width: 200, Height: 40})
	next, _ = next.(model).Update(Snapshot{Where: ".rondo", Reading: true})
	screen := next.(model).screen()
	if strings.Count(screen, readingLog) != 2 || strings.Contains(screen, "open runs") ||
		strings.Contains(screen, "none yet") {
		t.Errorf("it shows\n%s", screen)
	}
}

// A screen of any size is never larger than the terminal.
func TestTheScreenFits(t *testing.T) {
	for w := 1; w < 160; w += 3 {
		for h := 1; h < 40; h += 3 {
			lines := strings.Split(sized(t, w, h).screen(), "\n")
			if len(lines) > h {
				t.Fatalf("%d×%d: %d lines", w, h, len(lines))
			}
			for _, line := range lines {
				if n := shown(line); n > w && w > 1 {
					t.Fatalf("%d×%d: a line has %d columns: %q", w, h, n, line)
				}
			}
		}
	}
	if got := (model{}).screen(); got != "" {
		t.Errorf("a terminal of no size shows %q", got)
	}
}

// shown is how many columns a line has beside its styles.
func shown(line string) (n int) {
	styled := false
	for _, r := range line {
		switch {
		case r == '\x1b':
			styled = true
		case styled:
			styled = r != 'm'
		case width.LookupRune(r).Kind() == width.EastAsianWide:
			n += 2
		default:
			n++
		}
	}
	return n
}

func TestScrolling(t *testing.T) {
	m := sized(t, 100, 8)
	body := len(m.body())
	first := m.screen()
	m, _ = press(m, tea.KeyPressMsg{Code: tea.KeyDown})
	if m.from != 1 || m.screen() == first {
		t.Errorf("row %d is the first one", m.from)
	}
	for range 100 {
		m, _ = press(m, tea.KeyPressMsg{Code: tea.KeyPgDown})
	}
	if m.from != body-6 || !strings.Contains(m.screen(), "no such run") {
		t.Errorf("row %d of %d is the first one at the end:\n%s", m.from, body, m.screen())
	}
	next, _ := m.Update(tea.WindowSizeMsg{Width: 100, Height: 200}) // now all of it fits
	if m = next.(model); m.from != 0 {
		t.Errorf("row %d is the first one of a large terminal", m.from)
	}
	m, _ = press(m, tea.KeyPressMsg{Code: tea.KeyUp})
	if m.from != 0 {
		t.Errorf("row %d is the first one", m.from)
	}
}

func TestKeysThatQuit(t *testing.T) {
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl},
		{Code: tea.KeyEscape}} {
		_, cmd := press(sized(t, 80, 20), key)
		if cmd == nil {
			t.Fatalf("%s does nothing", key)
		}
		if _, quits := cmd().(tea.QuitMsg); !quits {
			t.Errorf("%s does not quit", key)
		}
	}
	if _, cmd := press(sized(t, 80, 20), tea.KeyPressMsg{Code: 'x', Text: "x"}); cmd != nil {
		t.Error("x does something")
	}
}

func TestAgo(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{-time.Hour: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m",
		59 * time.Minute: "59m", 47 * time.Hour: "47h", 72 * time.Hour: "3d"} {
		if got := ago(now, now.Add(-d)); got != want {
			t.Errorf("%s ago is %s, want %s", d, got, want)
		}
	}
}

func TestSpark(t *testing.T) {
	for want, values := range map[string][]float64{"": {1}, "▁▁": {2, 2}, "█▁": {1, 0}} {
		if got := spark(values); got != want {
			t.Errorf("%v is %q, want %q", values, got, want)
		}
	}
	if got := len([]rune(spark(make([]float64, 100)))); got != maxSpark {
		t.Errorf("%d columns", got)
	}
}

// The catalogue keeps a bounded number of runs and replicas, however many there were.
func TestTheCatalogueIsBounded(t *testing.T) {
	c := newCatalogue()
	apply := func(typ events.Type, entity string, n int, data any) {
		e, err := events.New(events.Catalogue, typ, entity, events.Ordinal(n), data)
		if err = errors.Join(err, c.apply(e)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 * maxRuns {
		run := fmt.Sprintf("r%d", i)
		apply(events.RunOpenedType, run, i, events.RunOpened{})
		if i%2 == 0 {
			apply(events.RunClosedType, run, i, events.RunClosed{})
		}
		apply(events.WeightsActivatedType, "small", i, events.WeightsActivated{Replica: run, Version: int64(i)})
	}
	if len(c.runs) != maxRuns || len(c.closed) > maxRuns || len(c.replicas) != maxReplicas {
		t.Errorf("%d runs, %d closed, %d replicas are kept", len(c.runs), len(c.closed), len(c.replicas))
	}
	names, more := c.selectRuns(maxFollowed)
	if len(names) != maxFollowed || names[0] != fmt.Sprintf("r%d", 3*maxRuns-1) ||
		names[1] != fmt.Sprintf("r%d", 3*maxRuns-3) || more != 3*maxRuns-maxFollowed {
		t.Errorf("%v are shown and %d are not", names, more)
	}
	apply(events.LogForgottenType, names[0], 1, events.LogForgotten{})
	if again, _ := c.selectRuns(1); again[0] == names[0] {
		t.Error("a run that was forgotten is shown")
	}
}
