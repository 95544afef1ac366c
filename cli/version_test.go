package cli

import (
	"runtime/debug"
	"testing"
)

func TestBuildOf(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.time", Value: "2026-11-23T07:00:00Z"},
			{Key: "vcs.modified", Value: "true"},
		}}
	defer func(was string) { version = was }(version)
	for _, c := range []struct {
		name, release string
		info          *debug.BuildInfo
		want          string
	}{
		{"a release", "1.2.3", info, "1.2.3 0123456789ab with changes"},
		{"a build of a clone", "", info, "(devel) 0123456789ab with changes"},
		{"a build without a repository", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{"a build that says nothing", "", nil, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			version = c.release
			if got := buildOf(c.info, c.info != nil).String(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
