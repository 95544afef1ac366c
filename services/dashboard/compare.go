package dashboard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

const (
	// mostCompared bounds the runs that are compared at once: there are as many colours.
	mostCompared = 5
	// mostSettings bounds the rows of settings that differ.
	mostSettings = 200
	// longestSetting is how many bytes of a setting are shown.
	longestSetting = 120
)

// comparePage sets runs beside each other.
type comparePage struct {
	Title, Here, Curves string
	Choices             []choice
	Runs                []comparedRun
	Settings            []setting
	More                int  // settings that differ and are not shown
	Waits               bool // the settings of a run are not read yet
}

// comparedRun is one of them, as far as it is folded.
type comparedRun struct {
	Name, State, Policy, Wrong string
	Seq, Last                  uint64
	Behind                     bool
	Step                       int64
	Reward                     *float64 // of the last batch of the first feed
	Sampled                    int64    // tokens
	Scored, Failed             int
	config                     runfile.RunConfig
	steps                      rewards
}

// setting is a setting that the runs do not share, with the value of each.
type setting struct {
	Name   string
	Values []string
}

// now is a request without its parameters: for runs as they are now.
func now(r *http.Request) *http.Request {
	clone := r.Clone(r.Context())
	clone.URL.RawQuery = ""
	return clone
}

// compareRuns shows what the settings of some runs differ in, and their curves over each other.
func (d *Dashboard) compareRuns(w http.ResponseWriter, r *http.Request) error {
	names, err := namedRuns(r)
	if err != nil {
		return err
	}
	listed, err := d.newest(r)
	if err != nil {
		return err
	}
	if len(names) == 0 && len(listed) > 1 {
		http.Redirect(w, r, comparing("/compare", listed[:2]), http.StatusSeeOther)
		return nil
	}
	p := comparePage{Title: "Runs compared", Here: "runs", Curves: comparing("/compare/curves", names)}
	for _, name := range append(listed, names...) {
		if !slices.ContainsFunc(p.Choices, func(c choice) bool { return c.Name == name }) {
			p.Choices = append(p.Choices, choice{Name: name, Here: slices.Contains(names, name)})
		}
	}
	if p.Runs, err = d.sides(r, names); err != nil {
		return err
	}
	if p.Waits = slices.ContainsFunc(p.Runs, func(c comparedRun) bool { return c.Seq == 0 }); !p.Waits {
		p.Settings = differing(p.Runs)
	}
	p.More = max(0, len(p.Settings)-mostSettings)
	p.Settings = p.Settings[:len(p.Settings)-p.More]
	return d.page(w, http.StatusOK, "compare", p)
}

// comparedCurves gives the rewards of some runs over one axis of steps, and
// over one of sampled tokens.
func (d *Dashboard) comparedCurves(w http.ResponseWriter, r *http.Request) error {
	names, err := namedRuns(r)
	if err != nil {
		return err
	}
	runs, err := d.sides(r, names)
	if err != nil {
		return err
	}
	return d.json(w, map[string]chart{
		"reward": overlaid(runs, func(s rewards) []float64 { return s.steps }),
		"tokens": overlaid(runs, func(s rewards) []float64 { return s.sampled }),
	})
}

// namedRuns are the runs that the address names, each once. A field that was left empty names none.
func namedRuns(r *http.Request) (names []string, err error) {
	for _, name := range r.URL.Query()["run"] {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > mostCompared {
		return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("At most %d runs can be compared at once.",
			mostCompared)}
	}
	return names, nil
}

func comparing(path string, names []string) string {
	return path + "?" + url.Values{"run": names}.Encode()
}

// newest lists the runs of the first page of the list.
func (d *Dashboard) newest(r *http.Request) (names []string, err error) {
	b, _, release, err := d.openCatalogue(r, 0)
	if err != nil {
		return nil, err
	}
	defer release()
	b.mu.Lock()
	defer b.mu.Unlock()
	names = slices.Clone(b.state.order[max(0, len(b.state.order)-runsPage):])
	slices.Reverse(names)
	return names, nil
}

// sides folds the runs as far as patience allows. There are several, and nothing folds them on when
// the page is answered, so it has more than others.
func (d *Dashboard) sides(r *http.Request, names []string) (runs []comparedRun, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), 20*d.patience)
	defer cancel()
	for _, name := range names {
		b, in, target, release, err := holdOf(now(r), d.shelf, name)
		if errors.Is(err, errNone) || errors.Is(err, eventlog.ErrNotFound) {
			return nil, &refusal{http.StatusNotFound, "There is no run " + line(name) + "."}
		}
		if err != nil {
			return nil, err
		}
		defer release() // they are folded beside each other
		if !b.has(in, target) {
			d.shelf.follow(b)
			b.await(ctx, target)
		}
		runs = append(runs, sideOf(b, in.LastSeq, target))
	}
	return runs, nil
}

func sideOf(b *book[runState], last, target uint64) comparedRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.state.books
	c := comparedRun{Name: b.run, State: l.State, Policy: l.Config.Policy, Seq: b.last, Last: max(last, b.last),
		Behind:  !b.ended && b.last < target,
		Sampled: l.Totals.Sampled, Scored: l.Totals.Scored, Failed: l.Totals.Failed, config: l.Config,
		steps: b.state.rewards()}
	if b.wrong != nil {
		c.Wrong = clip(b.wrong.Error(), 300)
	}
	if batches := l.Batches(l.FirstFeed()); len(batches) > 0 {
		last := batches[len(batches)-1]
		c.Step, c.Reward = last.Step, new(last.RewardMean)
	}
	return c
}

// overlaid has a curve for each run over one axis. Where a run has no point of its own
// its curve is drawn through.
func overlaid(runs []comparedRun, along func(rewards) []float64) chart {
	// A run may have several points at one place: the place is told apart by which of them it is.
	type place struct {
		x   float64
		nth int
	}
	c := chart{Joined: true}
	rows, at := []place{}, make([]map[place]*float64, len(runs))
	for i, run := range runs {
		at[i] = map[place]*float64{}
		p := place{x: -1}
		for n, x := range along(run.steps) {
			if x == p.x {
				p.nth++
			} else {
				p = place{x: x}
			}
			at[i][p] = run.steps.means[n]
			rows = append(rows, p)
		}
	}
	slices.SortFunc(rows, func(a, b place) int { return cmp.Or(cmp.Compare(a.x, b.x), a.nth-b.nth) })
	rows = slices.Compact(rows)
	for _, p := range rows {
		c.X = append(c.X, p.x)
	}
	for i, run := range runs {
		curve := series{Name: run.Name}
		for _, p := range rows {
			curve.Values = append(curve.Values, at[i][p])
		}
		c.Series = append(c.Series, curve)
	}
	return c.because("None of these runs has a batch yet. An evaluation makes none.")
}

// differing lists the settings that the runs do not share.
func differing(runs []comparedRun) (rows []setting) {
	var of []map[string]string
	all := map[string]bool{}
	for _, run := range runs {
		values := settingsOf(run, runs[0])
		for name := range values {
			all[name] = true
		}
		of = append(of, values)
	}
	for name := range all {
		row := setting{Name: name}
		same := true
		for _, values := range of {
			row.Values = append(row.Values, values[name])
			same = same && values[name] == of[0][name]
		}
		if !same {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b setting) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// settingsOf are the settings of a run by their paths in the run file. Of its tasks it says how
// many there are, and how many the first run lacks.
func settingsOf(run, first comparedRun) map[string]string {
	held := map[string]bool{}
	for _, t := range first.config.Tasks {
		held[t.Name+" "+t.Digest] = true
	}
	others := 0
	for _, t := range run.config.Tasks {
		if !held[t.Name+" "+t.Digest] {
			others++
		}
	}
	tasks := fmt.Sprint(len(run.config.Tasks))
	if others > 0 {
		tasks += fmt.Sprintf(" (%d not as in %s)", others, first.Name)
	}
	run.config.Tasks = nil
	values := map[string]string{"tasks": tasks}
	text, err := json.Marshal(run.config)
	var tree map[string]any
	if err = cmp.Or(err, json.Unmarshal(text, &tree)); err != nil {
		panic(err) // it was read from the log
	}
	flatten(values, "", tree)
	return values
}

// flatten writes the leaves of a tree of JSON by their paths. Members of a list have their names as
// keys, where they have any.
func flatten(values map[string]string, path string, tree any) {
	below := func(key string, value any) { flatten(values, strings.TrimPrefix(path+"."+key, "."), value) }
	switch v := tree.(type) {
	case map[string]any:
		for key, value := range v {
			below(key, value)
		}
		return
	case []any:
		if len(v) > 0 {
			if _, ok := v[0].(map[string]any); ok {
				for i, value := range v {
					member, _ := value.(map[string]any)
					name, ok := member["name"].(string)
					if !ok || name == "" {
						name = fmt.Sprint(i)
					}
					below(name, value)
				}
				return
			}
		}
	case string:
		if v != "" {
			values[path] = short(v)
			return
		}
	}
	text, _ := json.Marshal(tree) // it came of JSON
	values[path] = short(string(text))
}

// short is a value on one line. Of a long one it has the beginning, and a digest by
// which it differs from others.
func short(text string) string {
	if len(text) <= longestSetting {
		return line(text)
	}
	return fmt.Sprintf("%s (%d bytes, %.4x)", line(clip(text, longestSetting)), len(text), sha256.Sum256([]byte(text)))
}
