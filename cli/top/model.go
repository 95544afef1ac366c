package top

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/rondo-rl/rondo/cli/app"
)

// model is the screen: the last snapshot, how large the terminal is, and how far it is scrolled. It
// changes by messages alone.
type model struct {
	snapshot      *Snapshot
	width, height int
	from          int // the first row of the snapshot behind its head that is shown
}

// Init implements [tea.Model].
func (m model) Init() tea.Cmd { return nil }

// Update implements [tea.Model].
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case Snapshot:
		m.snapshot = &msg
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "up", "k":
			m.from--
		case "down", "j":
			m.from++
		case "pgup":
			m.from -= m.room()
		case "pgdown", "space":
			m.from += m.room()
		case "home", "g":
			m.from = 0
		}
	}
	m.from = max(0, min(m.from, len(m.body())-m.room()))
	return m, nil
}

const keys = "q quits   ↑ ↓ scroll"

// room is how many rows the body has.
func (m model) room() int { return max(1, m.height-2) }

func (m model) body() []app.Row {
	if m.snapshot == nil {
		return nil
	}
	return m.snapshot.lines()[1:]
}

// screen is what the terminal shows: the head, what fits of the body, and the keys.
func (m model) screen() string {
	if m.width <= 0 || m.height <= 0 {
		return ""
	}
	if m.snapshot == nil {
		return cut(app.Row{{Text: readingLog}}, m.width)
	}
	lines := []string{cut(m.snapshot.head(), m.width)}
	body := m.body()
	from := max(0, min(m.from, len(body)-m.room()))
	for i := range m.room() {
		line := ""
		if from+i < len(body) {
			line = cut(body[from+i], m.width)
		}
		lines = append(lines, line)
	}
	lines = append(lines, cut(app.Row{{Text: keys, Style: app.Faint}}, m.width))
	return strings.Join(lines[max(0, len(lines)-m.height):], "\n")
}

// cut writes the part of a row that fits.
func cut(r app.Row, width int) string {
	var b strings.Builder
	for _, piece := range r.Wrap(width)[0] {
		if piece.Style == app.Plain {
			b.WriteString(piece.Text)
		} else if piece.Text != "" {
			b.WriteString("\x1b[" + string(piece.Style) + "m" + piece.Text + "\x1b[0m")
		}
	}
	return b.String()
}

// View implements [tea.Model].
func (m model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "rondo top"
	return v
}
