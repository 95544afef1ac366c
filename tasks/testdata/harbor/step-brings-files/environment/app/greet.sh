echo "Hello, wold!"
