package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// runFile shows the configuration with which a run was opened, as a run file has it.
func (d *Dashboard) runFile(w http.ResponseWriter, r *http.Request) error {
	run := r.PathValue("run")
	if !events.ValidRun(run) {
		return errNone
	}
	config, err := d.log.RecordedConfig(r.Context(), run)
	if err != nil {
		return err
	}
	text, err := fileOf(config)
	if err != nil {
		return err
	}
	p, err := paged(r, "page", len(text), partText)
	if err != nil {
		return err
	}
	part, _ := cut(text, p.From, p.To-p.From)
	return d.page(w, http.StatusOK, "runfile", map[string]any{"Title": "Run file of " + run, "Here": "runs", "Run": run,
		"Text": part, "Pager": p, "Tasks": len(config.Tasks)})
}

// fileOf writes a configuration as a run file, without the tasks, which a run file names by their
// folder. Its keys have their order. It is for reading: white space that nobody sees, at the ends
// of lines, may be another one.
func fileOf(config runfile.RunConfig) (string, error) {
	config.Tasks = nil
	text, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("run file: %w", err)
	}
	var tree any
	if err := yaml.UnmarshalWithOptions(text, &tree, yaml.UseOrderedMap()); err != nil { // JSON is YAML
		return "", fmt.Errorf("run file: %w", err)
	}
	text, err = yaml.Marshal(tree)
	return string(text), err
}
