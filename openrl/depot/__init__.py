"""The depot: big bytes by reference. `port.Depot` is the promise, `filesystem.FsspecDepot` keeps it."""
