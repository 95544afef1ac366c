package storage_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// TestDescriptionMatchesTheFiles holds schemas/arrow.md against the schemas of real files.
func TestDescriptionMatchesTheFiles(t *testing.T) {
	text, err := os.ReadFile("../schemas/arrow.md")
	if err != nil {
		t.Fatal(err)
	}
	for title, file := range map[string][]byte{"## Trajectory\n": encodeTrajectory(t, makeTrajectory(1, 4)),
		"## Batch\n": encodeBatch(t, makeBatch(1, 4)), "## Log\n": encodeSegment(t, makeRecords(1))} {
		t.Run(title, func(t *testing.T) {
			schema := readSchema(t, file)
			_, section, found := strings.Cut(string(text), title)
			if !found {
				t.Fatalf("no section %q", title)
			}
			section, _, _ = strings.Cut(section, "\n## ")
			described := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|").FindAllStringSubmatch(section, -1)
			var want, got []string
			for _, field := range schema.Fields() {
				want = append(want, field.Name+" "+typeName(field.Type))
			}
			for _, row := range described {
				got = append(got, row[1]+" "+strings.NewReplacer("&lt;", "<", "&gt;", ">").Replace(row[2]))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%sdescribed: %q\nin files:  %q", title, got, want)
			}
			for _, key := range schema.Metadata().Keys() {
				if !strings.Contains(string(text), "`"+key+"`") {
					t.Errorf("%sthe metadata %s are not described", title, key)
				}
			}
		})
	}
}

func readSchema(t *testing.T, file []byte) *arrow.Schema {
	t.Helper()
	reader, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	return reader.Schema()
}

// typeName is the name of a type as the description writes it.
func typeName(dataType arrow.DataType) string {
	switch dataType := dataType.(type) {
	case *arrow.ListType:
		return "list<" + typeName(dataType.Elem()) + ">"
	case *arrow.StructType:
		var fields []string
		for _, field := range dataType.Fields() {
			fields = append(fields, field.Name+": "+typeName(field.Type))
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	case *arrow.TimestampType:
		return "timestamp[" + dataType.Unit.String() + ", " + dataType.TimeZone + "]"
	case *arrow.DurationType:
		return "duration[" + dataType.Unit.String() + "]"
	}
	return dataType.Name()
}
