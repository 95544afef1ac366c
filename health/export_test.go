package health

// TryNamed is the write to a directory where a file needs a name.
var TryNamed = tryNamed
