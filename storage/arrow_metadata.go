package storage

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

// metadata is the schema's key-value metadata in its order in the file.
type metadata struct{ keys, values []string }

func (m *metadata) add(key, value string) {
	m.keys, m.values = append(m.keys, key), append(m.values, value)
}

// addText adds a name, repaired as stringColumn repairs it.
func (m *metadata) addText(key, value string) {
	m.add(key, strings.ToValidUTF8(value, string(utf8.RuneError)))
}

func (m *metadata) addInt(key string, value int64) { m.add(key, strconv.FormatInt(value, 10)) }

func (m *metadata) size() int {
	size := 0
	for i := range m.keys {
		size += len(m.keys[i]) + len(m.values[i])
	}
	return size
}

// annotations are the metadata of a file that was read.
type annotations map[string]string

func checkMetadata(found arrow.Metadata, kind, version string) error {
	values := found.ToMap()
	if len(values) != found.Len() {
		return fmt.Errorf("metadata: a key appears twice")
	}
	if values["kind"] != kind {
		return fmt.Errorf("metadata: kind is %.40q, want %q", values["kind"], kind)
	}
	if values["schema_version"] != version {
		return fmt.Errorf("metadata: schema version is %.40q, this program reads %q", values["schema_version"], version)
	}
	return nil
}

// verify compares the checksum, if the writer of the file gave one.
func (a annotations) verify(texts arrow.Metadata, columns []arrow.Array) error {
	want, given := a["checksum"]
	if !given {
		return nil
	}
	signed := &metadata{}
	for i, key := range texts.Keys() {
		if key != "checksum" {
			signed.add(key, texts.Values()[i])
		}
	}
	if is := checksum(signed, columns); is != want {
		return fmt.Errorf("checksum is %s, but the metadata say %.40q", is, want)
	}
	return nil
}

// matches compares a file's metadata with what its rows say. The counts may be missing
// in a file from elsewhere.
func (a annotations) matches(computed *metadata, err error) error {
	if err != nil {
		return err
	}
	for i, key := range computed.keys {
		if value, given := a[key]; given && value != computed.values[i] {
			return fmt.Errorf("%w: metadata: %s is %.40q, but the rows say %q", ErrCorrupt, key,
				value, computed.values[i])
		}
	}
	return nil
}

// require gives an error unless all keys are there.
func (a annotations) require(keys ...string) error {
	for _, key := range keys {
		if _, given := a[key]; !given {
			return fmt.Errorf("%w: metadata: %s is missing", ErrCorrupt, key)
		}
	}
	return nil
}
