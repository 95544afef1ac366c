package events

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrNewer means that an event of a known type was written by a later version of Rondo, in a form
// that this one does not know. It must not be skipped, as a type may be that is unknown: what is
// decided without it would be wrong.
var ErrNewer = errors.New("written by a newer version of Rondo")

// dataVersion is the version of every type's payload, as this program writes and reads
// them. ce-type states it.
const dataVersion = 1

// cloudEvent is the ce-type of a payload of some data version.
func cloudEvent(t Type, version int) string {
	return "rondo.v" + strconv.Itoa(version) + "." + string(t)
}

// versionOf reads the data version out of a ce-type. One that has none is of the first version.
func versionOf(ceType string) int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(ceType, "rondo.v"), ".")
	version, err := strconv.Atoi(digits)
	if err != nil || version < 1 {
		return dataVersion
	}
	return version
}

// CheckVersion refuses the payload of a type that this program knows in a data version that it
// does not know: ErrNewer.
func (e Event) CheckVersion() error {
	if e.version > 0 && e.Type.IsDefined() {
		return fmt.Errorf("%s: %w: its data version is %d, this program knows %d", e.ID,
			ErrNewer, e.version, dataVersion)
	}
	return nil
}
