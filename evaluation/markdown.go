package evaluation

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// markdownRows bounds a table of Markdown, which is for reading.
const markdownRows = 200

// WriteMarkdown writes the report as GitHub-flavoured Markdown, without the plots and the single
// attempts. Names are shown so that they cannot be markup.
func WriteMarkdown(w io.Writer, r Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n", escaped(r.Title))
	for _, fact := range r.facts() {
		fmt.Fprintf(&b, "- %s: %s\n", fact[0].markdown(), fact[1].markdown())
	}
	for _, s := range r.sections() {
		if !s.Folded {
			s.markdown(&b)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (s section) markdown(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s", s.Title)
	for i, name := range s.Of {
		fmt.Fprintf(b, "%s %s", []string{":", " and"}[min(i, 1)], named(name).markdown())
	}
	b.WriteString("\n\n")
	if s.About != "" {
		fmt.Fprintf(b, "%s\n\n", s.About)
	}
	row := func(cells []cell) {
		for i, c := range cells {
			if !s.onlyMarks(i) {
				fmt.Fprintf(b, "| %s ", c.markdown())
			}
		}
		b.WriteString("|\n")
	}
	row(s.Header)
	for i := range s.Header {
		if !s.onlyMarks(i) {
			b.WriteString([]string{"|---", "|--:"}[min(i, 1)])
		}
	}
	b.WriteString("|\n")
	for _, cells := range s.Rows[:min(len(s.Rows), markdownRows)] {
		row(cells)
	}
	if more := len(s.Rows) - markdownRows; more > 0 {
		fmt.Fprintf(b, "\n%d more are in the JSON report.\n", more)
	}
	for i, note := range s.Notes {
		fmt.Fprintf(b, "%s- %s\n", []string{"\n", ""}[min(i, 1)], escaped(note))
	}
}

// onlyMarks: the column has no text.
func (s section) onlyMarks(column int) bool {
	return s.Header[column].Text == "" && len(s.Rows) > 0 && s.Rows[0][column].Text == ""
}

// markdown of a cell. A name is code, where nothing is markup but its own end and the table's bar.
func (c cell) markdown() string {
	if !c.Name {
		return c.Text
	}
	if strings.TrimSpace(c.Text) == "" {
		return ""
	}
	return "`" + strings.NewReplacer("`", "'", "|", "¦").Replace(c.Text) + "`"
}

// escaped is text within which no markup, link or mention begins. A sign within a word begins none.
func escaped(s string) string {
	var b strings.Builder
	before := ' '
	for _, r := range plain(s, longestNote) {
		word := unicode.IsLetter(before) || unicode.IsDigit(before)
		if strings.ContainsRune("\\`*[]<>#|~&!", r) || !word && strings.ContainsRune("_@", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		before = r
	}
	return strings.NewReplacer("://", "\\://", "www.", "www\\.").Replace(b.String())
}
