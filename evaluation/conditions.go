package evaluation

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Conditions are those that attempts were made under. Figures of other conditions are
// not only of another policy.
type Conditions struct {
	Name  string `json:"name"` // of the summary
	Model string `json:"model"`
	// Settings are texts by what they are about: "sampling", "limits", "tools", "scorer".
	Settings map[string]string `json:"settings"`
	// Tasks are the tasks' digests by name.
	Tasks map[string]string `json:"tasks"`
}

// ConditionsOf are those of a run.
func ConditionsOf(name string, cfg runfile.RunConfig) Conditions {
	c := Conditions{Name: name, Model: cfg.Policy, Settings: map[string]string{}, Tasks: map[string]string{}}
	if cfg.PolicyVersion != nil {
		c.Model += fmt.Sprintf("@%d", *cfg.PolicyVersion)
	}
	for name, v := range map[string]any{"sampling": cfg.Sampling, "limits": cfg.Limits,
		"tools": cfg.Tools, "scorer": cfg.Scorer} {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // it was read from the log
		}
		c.Settings[name] = string(text)
	}
	for _, task := range cfg.Tasks {
		c.Tasks[task.Name] = task.Digest
	}
	return c
}

// differences are notes on what sets one side's conditions apart from the
// other's, beside the model.
func (c Conditions) differences(other Conditions) (notes []string) {
	all := maps.Clone(c.Settings)
	maps.Copy(all, other.Settings)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if a, b := c.Settings[name], other.Settings[name]; a != b {
			notes = append(notes,
				fmt.Sprintf("the two sides differ in %s, which may be what the figures show: %s against %s", name,
					plain(a, longestName), plain(b, longestName)))
		}
	}
	var changed []string
	for _, task := range slices.Sorted(maps.Keys(c.Tasks)) {
		if digest, both := other.Tasks[task]; both && digest != c.Tasks[task] {
			changed = append(changed, task)
		}
	}
	if n := len(changed); n > 0 {
		notes = append(notes, fmt.Sprintf("%s with the same name and other contents on the two sides: %s",
			counted(n, "task", "tasks"), some(changed)))
	}
	return notes
}

// CompareConditions notes in a comparison what the conditions of its sides differ in.
func (c *Comparison) CompareConditions(a, b Conditions) {
	c.Notes = append(c.Notes, a.differences(b)...)
}

// conditions has a column for each side.
func (r Report) conditions() section {
	s := section{Title: "Conditions", Header: header("")}
	model, tasks, names := []cell{text("model")}, []cell{text("tasks")}, map[string]bool{}
	for _, c := range r.Conditions {
		s.Header = append(s.Header, named(c.Name))
		model = append(model, named(c.Model))
		tasks = append(tasks, text(fmt.Sprintf("%s, %s", counted(len(c.Tasks), "task", "tasks"), c.digest())))
		for name := range c.Settings {
			names[name] = true
		}
	}
	s.Rows = append(s.Rows, model)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row := []cell{text(name)}
		for _, c := range r.Conditions {
			row = append(row, named(c.Settings[name]))
		}
		s.Rows = append(s.Rows, row)
	}
	s.Rows = append(s.Rows, tasks)
	return s
}

// digest is one of all tasks together.
func (c Conditions) digest() string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		fmt.Fprintf(hash, "%q %q\n", name, c.Tasks[name])
	}
	return fmt.Sprintf("sha256:%.12x", hash.Sum(nil))
}
