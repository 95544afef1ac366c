package redact_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rondo-rl/rondo/redact"
)

func ExampleMask() {
	text := "export GITHUB_TOKEN=gh" + "p_9fK2mQ7xLc4VtB8nRz5WyH3jPd6GsA1eUo0X\nmake test"
	found, err := redact.Find(context.Background(), text)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(redact.Mask(text, found))
	// Output:
	// export GITHUB_TOKEN=[redacted: github-pat]
	// make test
}
