package evaluation

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"
)

// htmlRows bounds a table of HTML, so that a browser still opens the file.
const htmlRows = 2000

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"first": func(rows [][]cell) [][]cell { return rows[:min(len(rows), htmlRows)] },
	"more":  func(rows [][]cell) int { return max(0, len(rows)-htmlRows) },
	"plain": func(s string) string { return plain(s, longestNote) },
	"place": func(m mark, v float64) float64 {
		return axis{Least: m.Least, Most: m.Most, From: 4, To: markWidth - 4}.position(v)
	},
	"middle": func(p plot) float64 { return (p.X.From + p.X.To) / 2 },
}).Parse(page))

const markWidth = 120

// WriteHTML writes the report as one file that needs nothing else: styles and plots are in it, it
// has no scripts and may load nothing, and it follows the reader's choice of light or dark.
func WriteHTML(w io.Writer, r Report) error {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{"Title": plain(r.Title, longestName), "Facts": r.facts(),
		"Sections": r.sections()})
	if err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}
