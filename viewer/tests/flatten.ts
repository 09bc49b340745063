import { flat } from "./flat.ts";

console.log(JSON.stringify(await flat(process.argv.slice(2))));
