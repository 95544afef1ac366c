package schemas_test

import (
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/schemas"
)

// A client can check an event's body before it submits it.
func ExampleValidate() {
	fmt.Println(schemas.Validate(events.BatchConsumedType, []byte(`{"step": 7}`)))
	fmt.Println(schemas.Validate(events.BatchConsumedType, []byte(`{"step": "seven"}`)))
	// Output:
	// <nil>
	// step: got string, want integer
}
