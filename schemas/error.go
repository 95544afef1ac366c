package schemas

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// firstCause reduces a validation error to the first field that is wrong and what is wrong with it.
func firstCause(err error) error {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return err
	}
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	field := strings.Join(v.InstanceLocation, ".")
	if field == "" {
		field = "payload"
	}
	return fmt.Errorf("%s: %s", field, v.ErrorKind.LocalizedString(message.NewPrinter(language.English)))
}
