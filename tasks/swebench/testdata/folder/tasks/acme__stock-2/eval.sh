#!/bin/bash
set -uxo pipefail
cd /testbed
git status
git checkout 1234567890abcdef1234567890abcdef12345678 stock_test.go
git apply -v - <<'EOF_114329324912'
--- a/stock_test.go
+++ b/stock_test.go
@@ -8,3 +8,13 @@ func TestTake(t *testing.T) {
 		t.Error(s)
 	}
 }
+
+func TestTakeTooMany(t *testing.T) {
+	for name, have := range map[string]int{"none": 0, "one": 1} {
+		t.Run(name, func(t *testing.T) {
+			if s := (Stock{"bolt": have}); s.Take("bolt", 2) || s["bolt"] != have {
+				t.Error(s)
+			}
+		})
+	}
+}
EOF_114329324912
: '>>>>> Start Test Output'
go test -v ./...
SWEBENCH_TEST_EXIT_CODE=$?
: '>>>>> End Test Output'
echo ">>>>> Test Exit Code: $SWEBENCH_TEST_EXIT_CODE"
git checkout 1234567890abcdef1234567890abcdef12345678 stock_test.go
