package runfile

import (
	"strings"
	"testing"
)

func TestTrackers(t *testing.T) {
	for name, c := range map[string]struct {
		trackers []Tracker
		refused  string
	}{
		"some": {[]Tracker{{To: "wandb", Project: "maths 2"},
			{To: "wandb", Project: "maths 2", Feed: "main"}, {To: "tensorboard"}}, ""},
		"unknown":          {[]Tracker{{To: "visdom"}}, "mlflow, tensorboard, trackio, wandb"},
		"an option":        {[]Tracker{{To: "wandb", Project: "--logdir=/etc"}}, "project"},
		"control":          {[]Tracker{{To: "wandb", Project: "a\nb"}}, "project"},
		"long":             {[]Tracker{{To: "wandb", Project: strings.Repeat("x", 129)}}, "at most 128 bytes"},
		"no feed":          {[]Tracker{{To: "wandb", Feed: "judge"}}, `no feed "judge"`},
		"twice":            {[]Tracker{{To: "wandb"}, {To: "wandb"}}, "twice"},
		"more than enough": {make([]Tracker, 9), "at most 8"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := RunConfig{Feeds: []Feed{{Name: "main"}}, Trackers: c.trackers}
			errs := cfg.validateTrackers()
			if c.refused == "" && len(errs) > 0 {
				t.Error(errs)
			}
			if c.refused != "" && (len(errs) == 0 || !strings.Contains(errs[0].Error(), c.refused)) {
				t.Errorf("%v, want %q", errs, c.refused)
			}
		})
	}
	cfg := RunConfig{Epochs: 1, Trackers: []Tracker{{To: "wandb"}}}
	if errs := cfg.validateTrackers(); len(errs) != 1 {
		t.Errorf("an evaluation: %v", errs)
	}
}
