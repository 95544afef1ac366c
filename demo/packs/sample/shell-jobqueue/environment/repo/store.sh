# The file of the queue: one job a line, first in first out.

store_init() {
  [ -f "$QUEUE_FILE" ] || : > "$QUEUE_FILE"
}

store_size() {
  echo $(($(wc -l < "$QUEUE_FILE")))
}

store_first() {
  head -n 1 "$QUEUE_FILE"
}

# The new file is complete before it takes the place of the old one.
store_replace() {
  cat > "$QUEUE_FILE.new" && mv "$QUEUE_FILE.new" "$QUEUE_FILE"
}

store_append() {
  printf '%s\n' "$1" >> "$QUEUE_FILE"
}

store_prepend() {
  { printf '%s\n' "$1"; cat "$QUEUE_FILE"; } | store_replace
}

store_remove_first() {
  tail -n +3 "$QUEUE_FILE" | store_replace
}

store_remove_named() {
  grep -vxF -e "$1" "$QUEUE_FILE" | store_replace
}
