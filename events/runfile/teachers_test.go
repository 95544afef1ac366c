package runfile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
)

func TestTeachers(t *testing.T) {
	base := func() runfile.RunConfig {
		c := runfile.DefaultRunConfig()
		c.Policy, c.External = "small", true
		c.Teachers = []runfile.Teacher{{Name: "reference", URL: "http://10.0.0.9:8000/v1", Model: "ref"},
			{Name: "outside"}}
		c.Feeds[0].Teachers, c.Feeds[0].TeacherWait = []string{"outside", "reference"}, runfile.Duration(time.Minute)
		return c
	}
	c := base()
	if err := c.Validate(); err != nil || c.Feeds[0].TeacherWaits() != time.Minute ||
		(runfile.Feed{}).TeacherWaits() != runfile.DefaultTeacherWait {
		t.Errorf("a run with teachers: %v", err)
	}
	for want, change := range map[string]func(*runfile.RunConfig){
		"teachers: 1 (\"a b\"): name": func(c *runfile.RunConfig) { c.Teachers[1].Name = "a b" },
		"\"reference\" appears twice": func(c *runfile.RunConfig) { c.Teachers[1].Name = "reference" },
		"url \"…@host/v1\": give the base URL": func(
			c *runfile.RunConfig) {
			c.Teachers[0].URL = "http://user:secret@host/v1"
		},
		"url \"builtin\"":                   func(c *runfile.RunConfig) { c.Teachers[0].URL = "builtin" },
		"api \"llama.cpp\": must be one of": func(c *runfile.RunConfig) { c.Teachers[0].API = "llama.cpp" },
		"model: give the name":              func(c *runfile.RunConfig) { c.Teachers[0].Model = "" },
		"api and model belong to a url":     func(c *runfile.RunConfig) { c.Teachers[1].Model = "m" },
		"version: use at most 128 bytes": func(
			c *runfile.RunConfig) {
			c.Teachers[1].Version = strings.Repeat("x", 129)
		},
		"9 of them, at most 8": func(
			c *runfile.RunConfig) {
			c.Teachers = make([]runfile.Teacher, 9)
		},
		"the run has no teacher \"big\"": func(
			c *runfile.RunConfig) {
			c.Feeds[0].Teachers = []string{"big"}
		},
		"teachers: \"outside\" appears twice": func(
			c *runfile.RunConfig) {
			c.Feeds[0].Teachers = []string{"outside", "outside"}
		},
		"teacher_wait 25h0m0s: must be 0 to 24h0m0s": func(
			c *runfile.RunConfig) {
			c.Feeds[0].TeacherWait = runfile.Duration(25 * time.Hour)
		},
		"teacher_wait 1m0s: the feed names no teacher": func(c *runfile.RunConfig) { c.Feeds[0].Teachers = nil },
	} {
		t.Run(want, func(t *testing.T) {
			c := base()
			change(&c)
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
		})
	}
}
