package tools_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

func TestCodebaseSearch(t *testing.T) {
	sb := workspace(t)
	whole := "long.txt:3-100 where?\n" + strings.Repeat("#|line\n", 60) + "[38 more lines]\n\nlib/b.log:1-9\n1|log\n"
	for name, c := range map[string]struct {
		arguments, want string
		failed          bool
	}{
		"all":               {`{"query":" where? ","explanation":"x"}`, whole, false},
		"workspace":         {`{"query":"where?","target_directories":["."]}`, whole, false},
		"workspace by name": {`{"query":"where?","target_directories":["` + sb.Workdir() + `/"]}`, whole, false},
		"folder":            {`{"query":"where?","target_directories":["lib/"]}`, "lib/b.log:1-9\n1|log\n", false},
		"folder by name": {`{"query":"where?","target_directories":["` + sb.Workdir() + `/lib"]}`,
			"lib/b.log:1-9\n1|log\n", false},
		"nothing":         {`{"query":"where?","target_directories":["other"]}`, "Nothing found.", false},
		"no query":        {`{"query":" "}`, "query is missing", true},
		"long query":      {`{"query":"` + strings.Repeat("x", 2001) + `"}`, "query of 2001 bytes", true},
		"pull requests":   {`{"query":"where?","search_only_prs":true}`, "not indexed", true},
		"two folders":     {`{"query":"where?","target_directories":["a","b"]}`, "name one", true},
		"glob":            {`{"query":"where?","target_directories":["lib/*"]}`, "not a folder", true},
		"outside":         {`{"query":"where?","target_directories":["../etc"]}`, "not a folder", true},
		"outside by name": {`{"query":"where?","target_directories":["/etc"]}`, "not a folder", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, sb, tools.SearchTool, c.arguments)
			want := c.want
			for i := 3; strings.Contains(want, "#|"); i++ {
				want = strings.Replace(want, "#|", strconv.Itoa(i)+"|", 1)
			}
			if r.Error != c.failed || r.Content != want && !(c.failed && strings.Contains(r.Content, want)) {
				t.Errorf("%s: failed %v, %.200q, want %.200q", name, r.Error, r.Content, want)
			}
		})
	}
	plain, err := tools.NewSet(toolset.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	results, err := plain.Run(t.Context(), tools.Work{Sandbox: sb, State: &toolset.State{}},
		[]tools.Call{{Name: tools.SearchTool, Arguments: `{"query":"where?"}`}})
	if err != nil || !results[0].Error || !strings.Contains(results[0].Content, "there is no tool") {
		t.Errorf("where it is not offered: %v, %+v", err, results)
	}
}
