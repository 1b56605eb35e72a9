"""What happened in a render: the record, and the page that a person looks at."""
