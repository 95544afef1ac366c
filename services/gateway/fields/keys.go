package fields

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/rondo-rl/rondo/wording"
)

// Exact refuses an object with a key that only its case tells from one that is read, or that has
// one of these more than once: Go reads it as that one, or the last of them, and servers may not.
func Exact(object json.RawMessage, read ...string) error {
	w := walk{text: object}
	if c := w.peek(); c != '{' && c != 'n' { // null has no keys
		return errors.New("want an object")
	}
	return w.value(&shape{names: read}, mostNested)
}

// CountKeys is how many keys an object has, each as often as it is there.
func CountKeys(object json.RawMessage) (n int) {
	w := walk{text: object}
	if w.peek() != '{' {
		return 0
	}
	for w.at++; w.more(); n++ {
		w.quoted()
		w.pass()
	}
	return n
}

// Decode reads a part of a request whose objects may have other keys than those that are read. One
// that only its case tells from one of these is refused, and one that is repeated, as by Exact.
func Decode(raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return wording.Plain(err)
	}
	w := walk{text: raw}
	return w.value(shapes.find(reflect.TypeOf(into).Elem()), mostNested)
}

// mostNested is how deep what is read is nested at most, of objects and lists. No dialect has as
// much.
const mostNested = 16

// shape says which objects within a value are read, and which of their keys. A value
// without one is passed over.
type shape struct {
	names  []string // of an object
	fields []*shape // of these names; none where their values are passed over
	items  *shape   // of a list
}

// shapes are those of the types that are read.
var shapes = shapeCache{known: map[reflect.Type]*shape{}}

type shapeCache struct {
	sync.Mutex
	known map[reflect.Type]*shape
}

func (c *shapeCache) find(t reflect.Type) *shape {
	c.Lock()
	defer c.Unlock()
	return c.make(t)
}

func (c *shapeCache) make(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, is := c.known[t]; is {
		return s
	}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
	case t.Kind() == reflect.Slice:
		if items := c.make(t.Elem()); items != nil {
			c.known[t] = &shape{items: items}
		}
	case t.Kind() == reflect.Struct:
		s := &shape{}
		c.known[t] = s // it may be within itself
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			s.names, s.fields = append(s.names, cmp.Or(name, f.Name)), append(s.fields, c.make(f.Type))
		}
	}
	return c.known[t]
}

// walk goes once over a JSON text, and copies nothing. It leaves to the decoder to say
// what is wrong with a text that is no JSON, and comes to its end.
type walk struct {
	text []byte
	at   int
}

// value looks at the keys of the objects in a value that have the shape.
func (w *walk) value(s *shape, left int) error {
	c := w.peek()
	switch {
	case s == nil, s.items != nil && c != '[', s.items == nil && c != '{':
		w.pass()
		return nil
	case left == 0:
		return fmt.Errorf("want at most %d objects and lists within each other", mostNested)
	case s.items == nil:
		return w.object(s, left)
	}
	w.at++
	for i := 0; w.more(); i++ {
		if err := w.value(s.items, left-1); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func (w *walk) object(s *shape, left int) error {
	var found [128]bool
	w.at++
	for w.more() {
		i, err := s.find(w.quoted())
		if err != nil {
			return err
		}
		w.peek()
		w.at++ // behind the colon
		var field *shape
		if i >= 0 {
			if found[i] {
				return fmt.Errorf("%s: the object has it more than once", s.names[i])
			}
			if found[i] = true; s.fields != nil {
				field = s.fields[i]
			}
		}
		if err := w.value(field, left-1); err != nil {
			return fmt.Errorf("%s: %w", s.names[i], err)
		}
	}
	return nil
}

// longestKey is the length in bytes from which a quoted key is none that is read, however
// its letters are escaped.
const longestKey = 512

// find is the place of a quoted key among those that are read, or -1. One that equals another but
// for the case of its letters, as encoding/json compares them, is refused.
func (s *shape) find(quoted []byte) (int, error) {
	if len(quoted) > longestKey {
		return -1, nil
	}
	key, like := string(quoted[1:max(len(quoted)-1, 1)]), -1
	if strings.Contains(key, `\`) {
		key = unescaped(quoted)
	}
	for i, name := range s.names {
		if name == key {
			return i, nil
		}
		if strings.EqualFold(name, key) {
			like = i
		}
	}
	if like >= 0 {
		return -1, fmt.Errorf("%.100q: it is spelled %s", strings.Clone(key), s.names[like])
	}
	return -1, nil
}

func unescaped(quoted []byte) (text string) {
	if json.Unmarshal(quoted, &text) != nil {
		return ""
	}
	return text
}

// peek is the next byte that is no space; 0 at the end.
func (w *walk) peek() byte {
	for ; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// more reports whether an object or a list goes on, and else goes behind its end.
func (w *walk) more() bool {
	c := w.peek()
	for ; c == ','; c = w.peek() {
		w.at++
	}
	if c == '}' || c == ']' {
		w.at++
		return false
	}
	return c != 0
}

// pass goes to what is behind a value: a comma, or the end of what it is in.
func (w *walk) pass() {
	for depth := 0; w.at < len(w.text); w.at++ {
		switch w.text[w.at] {
		case '"':
			w.quoted()
			w.at--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		}
	}
}

// quoted goes behind a text, and is it with its quotes.
func (w *walk) quoted() []byte {
	begin := w.at
	for w.at++; w.at < len(w.text); w.at++ {
		switch w.text[w.at] {
		case '\\':
			w.at++
		case '"':
			w.at++
			return w.text[begin:w.at]
		}
	}
	w.at = len(w.text)
	return w.text[begin:]
}
