package scale

import (
	"encoding/json"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// results are round ones, so that what follows of them can be reckoned by hand.
func results() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"pipeline.json": file(`{"turns": 4, "cpus": 2, "rollouts_s": 200, "events_s": 2000, "cpu_ms_per_rollout": 9, "gib_at_100k_open": 0.5,
			"store_writes_per_rollout": 1, "store_reads_per_rollout": 3}`),
		"long.json": file(`{"tokens": 100, "log_bytes_per_sampled_token": 6, "by_length": [{"turns": 100, "own_ms": 3, "requests_ms": 1, "log_bytes_per_turn": 2600},
			{"turns": 300, "own_ms": 4, "requests_ms": 2, "log_bytes_per_turn": 2600}]}`),
		"sandbox.json": file(`{"create_ms": 10, "held_mib_each": 4}`),
		"feed.json":    file(`{"turns": [{"tokens": 1000, "file_bytes_per_token": 10}, {"tokens": 30000, "file_bytes_per_token": 5}]}`),
	}
}

func derive(t *testing.T, l Load) (figures map[string]float64, p Plan) {
	t.Helper()
	m, err := Read(results())
	if err != nil {
		t.Fatal(err)
	}
	if p, err = Derive(m, l); err != nil {
		t.Fatal(err)
	}
	figures = map[string]float64{}
	for _, f := range p.Figures {
		figures[f.Part+": "+f.Name] = f.Value
	}
	return figures, p
}

// TestDerive holds a plan to one that was made by hand.
func TestDerive(t *testing.T) {
	l := DefaultLoad()
	l.Rollouts, l.Sandboxes, l.Turns, l.Sampled, l.Prompt, l.Peak = 86400*10, 36000, 50, 200, 400, 2
	got, p := derive(t, l)
	for name, want := range map[string]float64{
		"load: rollouts a second": 10, "load: rollouts a second at the peak": 20, "load: time of a rollout": 1,
		"load: turns a second":                        500,
		"log: events of a rollout":                    102,  // 2 a turn and 10-8
		"log: bytes of a turn":                        4000, // 2600-600, 200 of 6, 400 of 2
		"log: bytes a second and replica at the peak": 4,
		"services: cores at the peak":                 4, // 20 of 50 turns of 4 ms
		"services: nodes":                             1,
		"services: memory for open rollouts":          0.18,
		"services: runs side by side":                 3,        // 200 of 4 turns are 16 of 50, half of that are 8
		"sandboxes: memory":                           9140.625, // 36,000 of 260 MiB
		"sandboxes: nodes":                            80,
		"sandboxes: consumers of single runners":      240,
		"store: writes of a rollout":                  26, // 1, and half of the turns
		"store: reads of a rollout":                   5,
		"store: bytes of a trajectory":                150000, // 30,000 tokens of 5
		"store: kept":                                 12.96,  // 25.92 million of 500 kB
		"store: requests":                             114.048,
		"store: space":                                298.08,
	} {
		if math.Abs(got[name]-want) > 1e-9*want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	first := p.Limits[0]
	if want := 86400 * 10 * 16.0 / 20; !strings.Contains(first.What, "one run") || math.Abs(first.Rollouts-want) > 1 {
		t.Errorf("the first limit is %+v, want that of one run at %v", first, want)
	}
	if !slices.IsSortedFunc(p.Limits, func(a, b Limit) int { return int(math.Copysign(1, a.Rollouts-b.Rollouts)) }) {
		t.Errorf("limits are in no order: %+v", p.Limits)
	}
}

// TestLimitsDoNotDependOnTheLoad: how far something goes is a matter of the measurements and of
// what a rollout is like, and not of how many are asked for.
func TestLimitsDoNotDependOnTheLoad(t *testing.T) {
	few, many := DefaultLoad(), DefaultLoad()
	many.Rollouts, many.Sandboxes = 10*few.Rollouts, 10*few.Sandboxes
	_, a := derive(t, few)
	_, b := derive(t, many)
	for i := range a.Limits {
		if x, y := a.Limits[i], b.Limits[i]; x.What != y.What || math.Abs(x.Rollouts-y.Rollouts) > 1e-6*x.Rollouts {
			t.Errorf("%+v and %+v", x, y)
		}
	}
}

// TestRefused: results that are missing, damaged or of another benchmark make no plan, and neither
// does a load that there cannot be.
func TestRefused(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(results())) {
		for what, text := range map[string]string{"empty": "", "of nothing": "{}",
			"of another kind": `{"turns": "many"}`} {
			dir := results()
			dir[name] = &fstest.MapFile{Data: []byte(text)}
			if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, ".json")) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		dir := results()
		delete(dir, name)
		if _, err := Read(dir); err == nil {
			t.Errorf("without %s there is a result", name)
		}
	}
	m, err := Read(results())
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Load){
		"no rollouts": func(l *Load) { l.Rollouts = 0 }, "not a number": func(l *Load) { l.Sampled = math.NaN() },
		"no turns":            func(l *Load) { l.Turns = 0 },
		"more than all turns": func(l *Load) { l.Changing = 2 },
	} {
		l := DefaultLoad()
		change(&l)
		if p, err := Derive(m, l); err == nil {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

// TestRecorded: the results that the program has are whole, and say on how
// many cores they were taken.
func TestRecorded(t *testing.T) {
	m, err := Recorded()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := fs.Sub(recorded, "measured")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipeline", "long", "sandbox", "feed"} {
		var said struct {
			Go   string `json:"go"`
			CPUs int    `json:"cpus"`
		}
		data, err := fs.ReadFile(dir, name+".json")
		if err == nil {
			err = json.Unmarshal(data, &said)
		}
		if err != nil || said.Go == "" || said.CPUs != m.Pipeline.CPUs {
			t.Errorf("%s.json: of %s, %d cores, %v", name, said.Go, said.CPUs, err)
		}
	}
}

func TestRounded(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "0.00123": 0.001234, "999": 999.4, "1,000": 999.6, "12,300": 12345,
		"1,230,000": 1234567, "1,000,000": 999999} {
		if got := Rounded(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}
